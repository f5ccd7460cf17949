/* Where there is no device: an empty list, and no failure. Run in a network namespace of its own,
 * whose interfaces are down. */
#include "urxe_test.h"

int main(void)
{
    int count = 7;
    struct ibv_device **list = ibv_get_device_list(&count);

    CHECK(list && !list[0]);
    CHECK_EQ(count, 0);
    ibv_free_device_list(list);
    return 0;
}
