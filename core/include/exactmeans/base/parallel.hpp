// The only header that deals with threads.
//
// parallel_for distributes the chunk numbers 0 … n_chunks-1 over a process-wide thread pool. The
// calling thread always runs chunks itself, so every call makes progress however busy the pool is,
// and no call waits for a thread that has not started. Results must not depend on which worker runs
// which chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace exactmeans {

// A non-owning reference to a callable: a function pointer and a context, no allocation. Take it as
// a parameter and never store it; it must not outlive the callable.
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
// for the whole call, so it can index per-worker buffers.
using Body = FunctionRef<void(std::ptrdiff_t chunk, int worker)>;

// Returns true to cancel. Lets Ctrl-C interrupt the core, which does not depend on Python.
using Poll = FunctionRef<bool()>;

struct Interrupted : std::exception {
    const char* what() const noexcept override { return "interrupted"; }
};

// Larger values of n_jobs are reduced to this one.
inline constexpr int max_jobs = 256;

// Runs every chunk once and returns when all are done.
//
// - After the first exception of a body, no further chunk starts. parallel_for rethrows the
//   exception once the running chunks have ended.
// - Only the calling thread polls: between its own chunks and while it waits for the others, at
//   most every 50 ms. The period is counted across calls, so a loop of short calls is polled too.
//   If poll returns true, parallel_for throws Interrupted; exceptions of poll are rethrown. Both
//   take precedence over an exception of a body, because the signal has been consumed.
// - With one job or one chunk, and inside a body, the loop runs inline. Inside a body it does not
//   poll.
// - Safe from several threads at once, and in the child of a fork. A child forked inside a body or
//   a poll must not return from it: the helper threads of that call do not exist there.
//
// Throws std::invalid_argument if n_jobs < 1.
void parallel_for(int n_jobs, std::ptrdiff_t n_chunks, Body body, Poll poll = {});

// How the caller wants loops to run; passed down to everything that has loops.
struct Threads {
    int n_jobs = 1;
    Poll poll = {};

    void run(std::ptrdiff_t n_chunks, Body body) const {
        parallel_for(n_jobs, n_chunks, body, poll);
    }

    // Calls body(begin, end, worker) for consecutive ranges of `step` numbers out of 0 … n-1.
    template <class Fn>
    void ranges(std::ptrdiff_t n, std::ptrdiff_t step, Fn&& body) const {
        run((n + step - 1) / step, [&](std::ptrdiff_t chunk, int worker) {
            const std::ptrdiff_t begin = chunk * step;
            body(begin, n - begin < step ? n : begin + step, worker);
        });
    }
};

// Sets the floating-point mode that docs/numerics.md requires (subnormals kept, round to nearest)
// and restores the previous state, with its sticky flags, at the end of the scope. Some libraries
// enable flush-to-zero for the whole process. parallel_for holds one on every thread that runs a
// body.
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

// The smallest CPU quota of the cgroups of this process, rounded up; 0 if there is none. Tests pass
// a prefix that is put before /proc and /sys.
int quota_cores(const std::string& prefix = "");

// How often to poll; the next poll of this thread is due now. With 0, tests interrupt a loop before
// a chunk of their choice.
void set_poll_period(int milliseconds);

}  // namespace detail

}  // namespace exactmeans
