// Decides whether to run an optional test. While the test pays, it runs every time. After a failure
// it is skipped 4 times, then 8, 16, ... up to 256 times, before it is tried again.
#pragma once

#include <algorithm>

namespace exactmeans {

class Backoff {
public:
    bool worth_a_try() {
        if (wait_ == 0) return true;
        --wait_;
        return false;
    }
    void judge(bool paid) {
        wait_ = paid ? 0 : next_;
        next_ = paid ? 4 : std::min(2 * next_, 256);
    }

private:
    int wait_ = 0, next_ = 4;
};

}  // namespace exactmeans
