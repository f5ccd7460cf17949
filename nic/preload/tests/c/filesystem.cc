/* What std::filesystem and streams of C++ see of a device in /sys. */
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace fs = std::filesystem;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::cerr << __FILE__ << ":" << __LINE__ << ": not true: " #condition "\n";            \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

int main()
{
    const fs::path device = "/sys/class/infiniband/urxe_lo";
    const fs::path function = "/sys/devices/pcif0ce:00/f0ce:00:01.0";
    const fs::path real = function / "infiniband/urxe_lo";
    std::string text;
    int found = 0, files = 0;

    CHECK(fs::canonical(device) == real);
    CHECK(fs::canonical(device / "../..") == function);
    CHECK(fs::is_symlink(device) && fs::is_directory(device));
    CHECK(fs::canonical(fs::read_symlink(device).is_relative() ? device : "") == real);
    CHECK(fs::equivalent(device / "device", function));
    CHECK(fs::is_regular_file(device / "node_guid") && !fs::exists(device / "nonsense"));
    for (const auto &entry : fs::directory_iterator("/sys/class/infiniband"))
        found += entry.path().filename() == "urxe_lo";
    CHECK(found == 1);
    for (const auto &entry : fs::recursive_directory_iterator(real))
        files += entry.is_regular_file();
    CHECK(files > 200);
    CHECK(std::getline(std::ifstream(device / "ports/1/link_layer"), text) && text == "Ethernet");
    CHECK(std::getline(std::ifstream(function / "numa_node"), text) && text == "-1");
    CHECK(!std::ofstream(device / "node_desc"));
    fs::current_path(device);
    CHECK(fs::current_path() == real);
    CHECK(fs::exists("ports/1"));
    std::cout << "all the same\n";
    return 0;
}
