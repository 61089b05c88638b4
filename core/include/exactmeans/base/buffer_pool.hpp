// Buffers that outlive the pass they were made for, so that the next one need not get them anew.
#pragma once

#include <any>
#include <mutex>
#include <utility>

namespace exactmeans {

// Where freed memory goes back to the system at once, as on Dask's workers, getting it again takes
// longer than filling it.
class BufferPool {
public:
    // What was last given back; a new one if that is taken, or of another kind.
    template <class T>
    T take() {
        const std::lock_guard lock(mutex_);
        T taken{};
        if (T* kept = std::any_cast<T>(&kept_)) taken = std::move(*kept);
        kept_.reset();
        return taken;
    }

    template <class T>
    void give(T used) {
        const std::lock_guard lock(mutex_);
        kept_ = std::move(used);
    }

private:
    std::mutex mutex_;
    std::any kept_;
};

}  // namespace exactmeans
