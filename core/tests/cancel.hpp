// Cancels a loop, or a series of loops, before a chunk of the test's choice.
#pragma once

#include "exactmeans/base/parallel.hpp"

// A poll that lets so many chunks run. While it lives, every chunk of this thread is polled.
struct CancelAfter {
    int chunks;

    explicit CancelAfter(int count) : chunks(count) { exactmeans::detail::set_poll_period(0); }
    CancelAfter(const CancelAfter&) = delete;
    ~CancelAfter() { exactmeans::detail::set_poll_period(50); }
    bool operator()() { return --chunks < 0; }
};
