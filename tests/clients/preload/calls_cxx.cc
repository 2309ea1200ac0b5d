/* SPDX-License-Identifier: BSD-3-Clause */
/* Files by way of C++: streams, std::filesystem. Prints what it finds; see preload_test.py. */
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace fs = std::filesystem;

int
main(int argc, char **argv)
{
    if (argc < 2 || argv[1][0] == '-') {
        return 2;
    }
    const fs::path top = argv[1];
    std::string text;

    {
        std::ofstream out(top / "stream");
        out << "line " << 1 << '\n' << "line " << 2.5 << std::endl << "tail";
        std::cout << out.tellp() << ' ' << out.good() << '\n';
    }
    std::ifstream in(top / "stream");
    while (std::getline(in, text)) {
        std::cout << text << '\n';
    }
    std::cout << in.eof() << '\n';
    std::fstream both(top / "stream", std::ios::in | std::ios::out);
    both.seekp(5);
    both << 'X';
    both.seekg(0);
    both >> text;
    both >> text;
    std::cout << text << '\n';
    both.close();
    std::ofstream(top / "stream", std::ios::app) << "+";
    std::ifstream again(top / "stream", std::ios::binary | std::ios::ate);
    std::cout << again.tellg() << '\n';
    std::cout << std::ifstream(top / "missing").is_open() << '\n';

    fs::create_directories(top / "a/b/c");
    fs::copy_file(top / "stream", top / "a/copy");
    fs::create_symlink("copy", top / "a/link");
    fs::create_hard_link(top / "a/copy", top / "a/hard");
    fs::rename(top / "a/copy", top / "a/b/moved");
    fs::resize_file(top / "a/b/moved", 3);
    fs::permissions(top / "a/b/moved", fs::perms::owner_read);
    std::vector<std::string> names;
    for (const auto &entry : fs::recursive_directory_iterator(top)) {
        names.push_back(fs::relative(entry.path(), top).string() + (entry.is_directory() ? "/"
                                                                    : entry.is_symlink() ? "@"
                                                                                         : ""));
    }
    std::sort(names.begin(), names.end());
    std::copy(names.begin(), names.end(), std::ostream_iterator<std::string>(std::cout, "\n"));
    std::cout << fs::file_size(top / "a/hard") << ' ' << fs::hard_link_count(top / "a/hard") << ' '
              << fs::exists(top / "a/link") << ' ' << fs::read_symlink(top / "a/link") << '\n';
    fs::copy(top / "a", top / "d", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    std::cout << fs::remove_all(top / "a") << ' ' << fs::remove_all(top / "d") << '\n';
    std::cout << (fs::space(top).capacity > 0) << '\n';
    fs::current_path(top);
    std::cout << fs::exists("stream") << ' ' << fs::current_path().filename() << '\n';
    return 0;
}
