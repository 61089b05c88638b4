// The only file that knows threads.
//
// parallel_for hands the numbers 0 … n_chunks-1 to a process-wide pool. The calling thread always
// takes part, so every call makes progress however busy the pool is, and no call ever waits for a
// thread that has not started. Results must not depend on which worker runs which chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace exactmeans {

// A borrowed callable: a function pointer and a context, no allocation. It must not outlive what it
// was made from, so take it as a parameter and never keep it.
template <class Signature>
class FunctionRef;

template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
public:
    FunctionRef() = default;

    template <class Fn>
        requires(std::is_object_v<std::remove_reference_t<Fn>> &&
                 !std::is_same_v<std::remove_cvref_t<Fn>, FunctionRef> &&
                 std::is_invocable_r_v<Result, Fn&, Args...>)
    FunctionRef(Fn&& fn) noexcept
        : context_(const_cast<void*>(static_cast<const void*>(std::addressof(fn)))),
          call_([](void* context, Args... args) -> Result {
              return (*static_cast<std::remove_reference_t<Fn>*>(context))(
                  std::forward<Args>(args)...);
          }) {}

    Result operator()(Args... args) const { return call_(context_, std::forward<Args>(args)...); }
    explicit operator bool() const noexcept { return call_ != nullptr; }

private:
    void* context_ = nullptr;
    Result (*call_)(void*, Args...) = nullptr;
};

// body(chunk, worker): worker is below min(n_jobs, n_chunks, max_jobs) and belongs to one thread
// for the whole call, so it may index per-worker buffers.
using Body = FunctionRef<void(std::ptrdiff_t chunk, int worker)>;

// Returns true to cancel. This is how Ctrl-C gets in without the core knowing Python.
using Poll = FunctionRef<bool()>;

struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// More jobs than this are quietly reduced to it.
inline constexpr int max_jobs = 256;

// Runs every chunk once and returns when all are done.
//
// - The first exception of a body stops the handing out of chunks; it is rethrown here once the
//   chunks already running have ended.
// - Only the calling thread polls: between its own chunks and while it waits for the others, at
// most
//   every 50 ms, counted across calls so that many short calls in a row are polled as well. When
//   poll returns true Interrupted is thrown; what poll throws is rethrown. Either wins over an
//   exception of a body, because the signal behind it has been consumed and would be lost.
// - With one job or one chunk, or from inside a body, it runs inline; inside a body it does not
// poll.
// - Safe from several threads at once, and in the child of a fork. A child forked inside a body or
// a
//   poll must not return from it: the helpers of that call do not exist there.
//
// Throws std::invalid_argument when n_jobs < 1.
void parallel_for(int n_jobs, std::ptrdiff_t n_chunks, Body body, Poll poll = {});

// How a caller wants loops to be run; handed down to whatever has loops.
struct Threads {
    int n_jobs = 1;
    Poll poll = {};

    void run(std::ptrdiff_t n_chunks, Body body) const {
        parallel_for(n_jobs, n_chunks, body, poll);
    }

    // body(begin, end, worker) for consecutive ranges of `step` out of 0 … n-1.
    template <class Fn>
    void ranges(std::ptrdiff_t n, std::ptrdiff_t step, Fn&& body) const {
        run((n + step - 1) / step, [&](std::ptrdiff_t chunk, int worker) {
            const std::ptrdiff_t begin = chunk * step;
            body(begin, n - begin < step ? n : begin + step, worker);
        });
    }
};

// The arithmetic that the numerics contract needs: subnormals kept, round to nearest. Some
// libraries switch on flush-to-zero for a whole process. The former state, with its sticky flags,
// comes back at the end of the scope. parallel_for holds one on every thread that runs a body.
class FloatEnvironment {
public:
    FloatEnvironment() noexcept;
    ~FloatEnvironment();
    FloatEnvironment(const FloatEnvironment&) = delete;
    FloatEnvironment& operator=(const FloatEnvironment&) = delete;

private:
    std::uint64_t saved_;
};

// EXACTMEANS_NUM_THREADS if it is a positive integer; else the cores this process may run on
// (affinity mask, cgroup quota rounded up), at most LOKY_MAX_CPU_COUNT if that is set. At least 1,
// at most max_jobs. The quota is read once.
int usable_cores();

namespace detail {

// The smallest CPU quota of the process's control groups, rounded up; 0 when there is none. The
// prefix stands before /proc and /sys so that tests can bring their own.
int quota_cores(const std::string& prefix = "");

}  // namespace detail

}  // namespace exactmeans
