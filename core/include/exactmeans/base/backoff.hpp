// Whether a test that may or may not pay is worth its cost: it is used while it pays, and after it
// did not, left alone for longer and longer before it gets another chance.
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
