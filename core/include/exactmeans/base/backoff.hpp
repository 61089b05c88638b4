// Exponential back-off for an optional test, such as a filter that does not always pay. While the
// test pays, it runs every time. After a failure it is skipped `first_wait` times, after the next
// one twice as often, and so on up to `longest_wait` times. A success resets the wait.
#pragma once

#include <algorithm>

namespace exactmeans {

class Backoff {
public:
    // Waits are numbers of skipped tests. first_wait = longest_wait: always the same wait.
    // first_wait = 0: the first failure skips 0 tests, the second 1, then 2, 4, ...
    constexpr Backoff(int first_wait, int longest_wait)
        : first_wait_(first_wait), longest_wait_(longest_wait), next_wait_(first_wait) {}

    // Should the test run now? If not, this counts as one skipped test.
    bool due() {
        if (wait_ == 0) return true;
        --wait_;
        return false;
    }
    // Records whether a test that ran has paid.
    void record(bool paid) {
        wait_ = paid ? 0 : next_wait_;
        next_wait_ = paid ? first_wait_ : std::clamp(2 * next_wait_, 1, longest_wait_);
    }

private:
    int first_wait_, longest_wait_;
    int next_wait_;  // after the next failure
    int wait_ = 0;   // tests still to skip
};

}  // namespace exactmeans
