// Memory that begins with a line of the cache: a vector as wide as that never lies in two of them.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace exactmeans {

template <class T>
struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t line{64};

    LineAllocator() = default;
    template <class Other>
    LineAllocator(const LineAllocator<Other>&) {}

    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
    void deallocate(T* from, std::size_t) { ::operator delete(from, line); }
    friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }
};

template <class T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace exactmeans
