#include "exactmeans/base/backoff.hpp"

#include <vector>

#include "check.hpp"

using namespace exactmeans;

namespace {

// How many tests are skipped after each of `failures` failures in a row.
std::vector<int> waits(Backoff& backoff, int failures) {
    std::vector<int> skipped;
    for (int f = 0; f < failures; ++f) {
        backoff.record(false);
        int wait = 0;
        while (!backoff.due()) ++wait;
        skipped.push_back(wait);
    }
    return skipped;
}

}  // namespace

TEST(is_due_until_the_first_failure) {
    Backoff backoff(4, 256);
    for (int t = 0; t < 3; ++t) {
        CHECK(backoff.due());
        backoff.record(true);
    }
    CHECK(backoff.due());
}

TEST(waits_double_up_to_the_longest) {
    Backoff backoff(4, 20);
    CHECK(waits(backoff, 5) == std::vector<int>{4, 8, 16, 20, 20});
}

TEST(a_success_resets_the_wait) {
    Backoff backoff(1, 16);
    CHECK(waits(backoff, 3) == std::vector<int>{1, 2, 4});
    backoff.record(true);
    CHECK(backoff.due());
    CHECK(waits(backoff, 2) == std::vector<int>{1, 2});
}

TEST(a_first_wait_of_0_tries_again_at_once) {
    Backoff backoff(0, 16);
    CHECK(waits(backoff, 7) == std::vector<int>{0, 1, 2, 4, 8, 16, 16});
}

TEST(equal_limits_give_a_constant_wait) {
    Backoff backoff(16, 16);
    CHECK(waits(backoff, 3) == std::vector<int>{16, 16, 16});
}
