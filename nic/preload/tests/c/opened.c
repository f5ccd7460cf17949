/* A program that is not linked with libibverbs and opens it later, as NCCL and others do. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "urxe_test.h"

typedef struct ibv_device **list_function(int *);
typedef const char *name_function(struct ibv_device *);
typedef void free_function(struct ibv_device **);

static void find_device(list_function *list_devices, name_function *name, free_function *free_list)
{
    struct ibv_device **list;
    int found = 0;

    CHECK(list_devices && name && free_list);
    CHECK((list = list_devices(NULL)) != NULL);
    for (int i = 0; list[i]; i++)
        found += !strcmp(name(list[i]), LOOPBACK);
    CHECK_EQ(found, 1);
    free_list(list);
}

int main(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL), *again;
    Dl_info info;

    CHECK(library);
    find_device((list_function *)dlsym(library, "ibv_get_device_list"),
                (name_function *)dlsym(library, "ibv_get_device_name"),
                (free_function *)dlsym(library, "ibv_free_device_list"));
    find_device((list_function *)dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1"),
                (name_function *)dlvsym(library, "ibv_get_device_name", "IBVERBS_1.1"),
                (free_function *)dlvsym(library, "ibv_free_device_list", "IBVERBS_1.1"));
    /* What we do not have is libibverbs's, what is not there is not there, libc's is libc's. */
    CHECK(dladdr(dlsym(library, "ibv_wc_status_str"), &info) &&
          strstr(info.dli_fname, "libibverbs"));
    CHECK(!dlsym(library, "ibv_nonsense"));
    CHECK(dlerror());
    /* Programs that look at dlerror to see whether it was found (TensorPipe) see no error if it
     * was. */
    CHECK(dlsym(library, "ibv_event_type_str") && !dlerror());
    CHECK(dlvsym(library, "ibv_wc_status_str", "IBVERBS_1.1") && !dlerror());
    CHECK(dlsym(library, "ibv_alloc_pd") && !dlerror());
    CHECK(!dlvsym(library, "ibv_alloc_pd", "IBVERBS_9.9"));
    CHECK(dlsym(RTLD_DEFAULT, "getpid") && dlsym(RTLD_NEXT, "getpid"));
    CHECK(dlsym(RTLD_DEFAULT, "ibv_get_device_list") == dlsym(library, "ibv_get_device_list"));
    CHECK((again = dlopen(NULL, RTLD_NOW)) && dlsym(again, "printf"));
    CHECK_EQ(dlclose(library), 0);
    return 0;
}
