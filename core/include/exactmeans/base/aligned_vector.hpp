// A std::vector whose memory starts on a cache line (64 bytes), so that an aligned 64-byte load
// never crosses two lines.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace exactmeans {

template <class T>
struct CacheLineAllocator {
    using value_type = T;
    static constexpr std::align_val_t line{64};

    CacheLineAllocator() = default;
    template <class Other>
    CacheLineAllocator(const CacheLineAllocator<Other>&) {}

    T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), line)); }
    void deallocate(T* from, std::size_t) { ::operator delete(from, line); }
    friend bool operator==(const CacheLineAllocator&, const CacheLineAllocator&) { return true; }
};

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace exactmeans
