// One buffer that a pass hands to the next pass, instead of allocating it again.
#pragma once

#include <any>
#include <memory>
#include <mutex>
#include <utility>

namespace exactmeans {

// Some allocators return freed memory to the system at once (on Dask workers, for example); mapping
// it again takes longer than filling it. So passes reuse one buffer.
class BufferPool {
public:
    // Returns the stored buffer, or a new one if the pool is empty or holds another type.
    template <class T>
    T take() {
        const std::lock_guard lock(mutex_);
        T taken{};
        if (const auto* kept = std::any_cast<std::shared_ptr<T>>(&kept_)) taken = std::move(**kept);
        kept_.reset();
        return taken;
    }

    template <class T>
    void give(T used) {
        const std::lock_guard lock(mutex_);
        kept_ = std::make_shared<T>(std::move(used));
    }

private:
    std::mutex mutex_;
    std::any kept_;  // a shared_ptr, because std::any would compile copies of what it holds
};

}  // namespace exactmeans
