// Totals of a pass over all blocks of rows, recorded part by part by several threads.
#pragma once

#include <mutex>
#include <utility>

namespace exactmeans {

// Stats is a struct of counts with operator+=.
template <class Stats>
class Totals {
public:
    void record(const Stats& part) {
        const std::lock_guard lock(mutex_);
        total_ += part;
    }
    // Returns the totals and begins the next pass.
    Stats take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(total_, {});
    }

private:
    std::mutex mutex_;
    Stats total_{};
};

}  // namespace exactmeans
