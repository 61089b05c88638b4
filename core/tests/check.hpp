// The test helper. Include it once per executable: it defines main.
//
//   TEST(name) { CHECK(condition); CHECK_EQ(got, wanted); CHECK_THROWS(expression, Exception); }
//
// A failed check is reported and the test continues; any thread may check. Arguments of the
// executable select tests whose names contain one of them.
#pragma once

#include <atomic>
#include <cstdio>
#include <exception>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace check {

struct Test {
    const char* name;
    void (*run)();
};

inline std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

inline std::atomic<int> failures{0};  // of the running test

inline bool add(const char* name, void (*run)()) {
    tests().push_back({name, run});
    return true;
}

inline void fail(const char* file, int line, const std::string& what) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    ++failures;
    std::cerr << file << ":" << line << ": " << what << std::endl;
}

template <class T>
std::string show(const T& value) {
    if constexpr (requires(std::ostream& out) { out << value; }) {
        std::ostringstream out;
        out.precision(17);
        out << value;
        return out.str();
    } else {
        return "(not printable)";
    }
}

template <class Got, class Wanted>
void equal(const Got& got, const Wanted& wanted, const char* text, const char* file, int line) {
    if (!(got == wanted)) fail(file, line, text + (": " + show(got)) + " != " + show(wanted));
}

inline void run(const Test& test) {
    try {
        test.run();
    } catch (const std::exception& error) {
        fail(test.name, 0, std::string("uncaught: ") + error.what());
    } catch (...) {
        fail(test.name, 0, "uncaught exception");
    }
}

inline bool chosen(std::string_view name, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        if (name.find(argv[i]) != std::string_view::npos) return true;
    }
    return argc == 1;
}

}  // namespace check

#define TEST(name)                                                                    \
    static void test_##name();                                                        \
    static const bool added_##name [[maybe_unused]] = check::add(#name, test_##name); \
    static void test_##name()

#define CHECK(...)                                                         \
    do {                                                                   \
        if (!(__VA_ARGS__)) check::fail(__FILE__, __LINE__, #__VA_ARGS__); \
    } while (false)

#define CHECK_EQ(got, wanted) check::equal((got), (wanted), #got " == " #wanted, __FILE__, __LINE__)

#define CHECK_THROWS(expression, Exception)                                                  \
    do {                                                                                     \
        bool thrown_ = false;                                                                \
        try {                                                                                \
            static_cast<void>(expression);                                                   \
        } catch (const Exception&) {                                                         \
            thrown_ = true;                                                                  \
        }                                                                                    \
        if (!thrown_) check::fail(__FILE__, __LINE__, #expression " throws no " #Exception); \
    } while (false)

int main(int argc, char** argv) {
    int passed = 0, failed = 0;
    for (const check::Test& test : check::tests()) {
        if (!check::chosen(test.name, argc, argv)) continue;
        check::failures = 0;
        check::run(test);
        if (check::failures == 0) {
            ++passed;
        } else {
            ++failed;
            std::printf("FAILED %s\n", test.name);
        }
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    // A run that selects no test fails.
    return failed == 0 && passed > 0 ? 0 : 1;
}
