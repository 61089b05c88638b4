#include "exactmeans/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace exactmeans {

namespace {

using Clock = std::chrono::steady_clock;
std::atomic<int> poll_period = 50;  // milliseconds

// Per thread, not per call, so that a loop of calls shorter than the period can be interrupted too.
thread_local Clock::time_point next_poll{};
thread_local bool inside_body = false;

class InsideBody {
public:
    InsideBody() noexcept { inside_body = true; }
    ~InsideBody() { inside_body = false; }
    InsideBody(const InsideBody&) = delete;
    InsideBody& operator=(const InsideBody&) = delete;
};

// Spins for up to 50 µs before sleeping: calls in a loop follow each other within microseconds, and
// waking a thread takes longer than a small call.
template <class Done>
void spin_until(Done done) noexcept {
    const auto end = Clock::now() + std::chrono::microseconds(50);
    while (!done() && Clock::now() < end) {
        for (int i = 0; i < 16 && !done(); ++i) {
#if defined(__x86_64__)
            _mm_pause();
#elif defined(__aarch64__)
            asm volatile("yield");
#endif
        }
    }
}

// One call of parallel_for, on the stack of the caller.
class Job {
public:
    Job(std::ptrdiff_t n_chunks, Body body, Poll poll) noexcept
        : n_chunks_(n_chunks), body_(body), poll_(poll) {}

    void run_as_caller() noexcept {
        const InsideBody inside;
        poll_if_due();
        while (run_one(0))
            if (has_chunks()) poll_if_due();
    }

    // A guard per job, not per thread, because an earlier body may have left flush-to-zero on.
    void run_as_helper(int worker) noexcept {
        const FloatEnvironment float_environment;
        const InsideBody inside;
        while (run_one(worker)) {
        }
    }

    // Called by the calling thread only, without any lock: poll may run foreign code that waits for
    // a thread inside parallel_for.
    void poll_if_due() noexcept {
        if (!polls() || Clock::now() < next_poll) return;
        try {
            if (poll_()) throw Interrupted();
        } catch (...) {
            interruption_ = std::current_exception();
            cancel();
        }
        next_poll = Clock::now() + std::chrono::milliseconds(poll_period.load());
    }

    bool polls() const noexcept { return poll_ && !interruption_; }

    bool has_chunks() const noexcept { return next_.load(std::memory_order_relaxed) < n_chunks_; }

    // Called after every helper has left.
    void rethrow() const {
        if (interruption_) std::rethrow_exception(interruption_);
        if (error_) std::rethrow_exception(error_);
    }

    // Guarded by the mutex of the pool.
    int wanted = 0;              // helpers that may still join
    int joined = 0;              // helpers that joined so far: the worker number of the last one
    std::atomic<int> active{0};  // helpers inside; also read without the mutex
    std::condition_variable all_left;

private:
    bool run_one(int worker) noexcept {
        const std::ptrdiff_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= n_chunks_) return false;
        try {
            body_(chunk, worker);
        } catch (...) {
            if (!failed_.test_and_set(std::memory_order_relaxed)) error_ = std::current_exception();
            cancel();
        }
        return true;
    }

    void cancel() noexcept { next_.store(n_chunks_, std::memory_order_relaxed); }

    // Relaxed order is enough: the writes of chunks reach the caller through the mutex of the pool,
    // which each helper locks to join and to leave.
    std::atomic<std::ptrdiff_t> next_{0};
    std::atomic_flag failed_ = ATOMIC_FLAG_INIT;
    const std::ptrdiff_t n_chunks_;
    const Body body_;
    const Poll poll_;
    std::exception_ptr error_;         // written by the thread that sets failed_
    std::exception_ptr interruption_;  // written by the calling thread only
};

class Pool {
public:
    static Pool& instance();

    void run(Job& job, int helpers) {
        open(job, helpers);
        job.run_as_caller();
        close(job);
    }

private:
    void open(Job& job, int helpers) {
        {
            const std::lock_guard lock(mutex_);
            grow(helpers);
            job.wanted = helpers;
            open_jobs_.push_back(&job);
            ++opened_;
        }
        for (int i = 0; i < helpers; ++i) work_.notify_one();
    }

    void close(Job& job) noexcept {
        spin_until([&] { return job.active == 0; });
        std::unique_lock lock(mutex_);
        std::erase(open_jobs_, &job);
        while (job.active > 0) {
            if (!job.polls()) {
                job.all_left.wait(lock);
            } else if (job.all_left.wait_until(lock, next_poll) == std::cv_status::timeout) {
                lock.unlock();
                job.poll_if_due();
                lock.lock();
            }
        }
    }

    void grow(int helpers) {
        try {
            for (; n_threads_ < helpers; ++n_threads_) std::thread([this] { help(); }).detach();
        } catch (const std::system_error&) {
            // The system has no more threads. The call is only slower, because the caller runs
            // chunks itself.
        }
    }

    [[noreturn]] void help() {
        std::unique_lock lock(mutex_);
        for (;;) {
            Job* job = nullptr;
            if (!next_job()) {
                const auto seen = opened_.load();
                lock.unlock();
                spin_until([&] { return opened_ != seen; });
                lock.lock();
            }
            work_.wait(lock, [&] { return (job = next_job()) != nullptr; });
            --job->wanted;
            ++job->active;
            const int worker = ++job->joined;
            lock.unlock();
            job->run_as_helper(worker);
            lock.lock();
            // Under the lock, because the caller may destroy the job as soon as it is released.
            if (--job->active == 0) job->all_left.notify_one();
        }
    }

    Job* next_job() const noexcept {
        for (Job* job : open_jobs_) {
            if (job->wanted > 0 && job->has_chunks()) return job;
        }
        return nullptr;
    }

    std::mutex mutex_;
    std::condition_variable work_;
    std::vector<Job*> open_jobs_;  // oldest first
    std::atomic<unsigned> opened_{0};
    int n_threads_ = 0;
};

// Never destroyed: helpers stay parked until the process ends, and nothing is joined at exit. No
// lock guards the pointer, because another thread could hold it during a fork.
constinit std::atomic<Pool*> current_pool{nullptr};

Pool& Pool::instance() {
    Pool* pool = current_pool.load(std::memory_order_acquire);
    if (pool == nullptr) {
        auto fresh = std::make_unique<Pool>();
        if (current_pool.compare_exchange_strong(pool, fresh.get(), std::memory_order_acq_rel)) {
            pool = fresh.release();
        }
    }
    return *pool;
}

#if !defined(_WIN32)
// The child of a fork has no helpers and perhaps a locked mutex, so it drops the pool and creates
// its own on first use. Registered when the library is loaded, before any fork.
[[maybe_unused]] const int fork_handler = pthread_atfork(
    nullptr, nullptr, [] { current_pool.store(nullptr, std::memory_order_relaxed); });
#endif

}  // namespace

void parallel_for(int n_jobs, std::ptrdiff_t n_chunks, Body body, Poll poll) {
    if (n_jobs < 1) throw std::invalid_argument("n_jobs must be at least 1");
    const FloatEnvironment float_environment;
    if (inside_body) {
        for (std::ptrdiff_t chunk = 0; chunk < n_chunks; ++chunk) body(chunk, 0);
        return;
    }
    Job job(n_chunks, body, poll);
    const auto workers = std::min<std::ptrdiff_t>(std::min(n_jobs, max_jobs), n_chunks);
    if (workers > 1) {
        Pool::instance().run(job, static_cast<int>(workers) - 1);
    } else {
        job.run_as_caller();
    }
    job.rethrow();
}

namespace {

#if defined(__x86_64__)
std::uint64_t read_control() noexcept { return _mm_getcsr(); }
void write_control(std::uint64_t bits) noexcept { _mm_setcsr(static_cast<unsigned>(bits)); }
// MXCSR: flush-to-zero, rounding mode, denormals-are-zero.
constexpr std::uint64_t unwanted = 0x8000 | 0x6000 | 0x0040;
#elif defined(__aarch64__)
std::uint64_t read_control() noexcept {
    std::uint64_t bits;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
void write_control(std::uint64_t bits) noexcept { asm volatile("msr fpcr, %0" : : "r"(bits)); }
// FPCR: FZ, RMode, FZ16, AH, FIZ.
constexpr std::uint64_t unwanted = (1u << 24) | (3u << 22) | (1u << 19) | (1u << 1) | 1u;
#else
#error "exactmeans needs to know how to keep subnormal numbers on this CPU"
#endif

}  // namespace

FloatEnvironment::FloatEnvironment() noexcept : saved_(read_control()) {
    write_control(saved_ & ~unwanted);
}

FloatEnvironment::~FloatEnvironment() { write_control(saved_); }

namespace {

// All of `text` as a positive number, else 0.
long long positive(std::string_view text) {
    long long value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    return parsed.ec == std::errc() && parsed.ptr == end && value > 0 ? value : 0;
}

#if defined(__linux__)
long long read_positive(std::istream& file) {
    std::string word;
    file >> word;
    return positive(word);
}

// The quota of one cgroup in cores, rounded up; 0 if it has none ("max", -1, or no such file).
long long group_quota(const std::string& group, bool v2) {
    std::ifstream quota_file(group + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    std::ifstream period_file(v2 ? "" : group + "/cpu.cfs_period_us");
    const long long q = read_positive(quota_file);
    const long long p = read_positive(v2 ? quota_file : period_file);
    return q > 0 && p > 0 ? (q - 1) / p + 1 : 0;
}
#endif

int affinity_cores() {
#if defined(__linux__)
    cpu_set_t sets[16];  // 16,384 CPUs; one set is too small for the largest machines
    if (sched_getaffinity(0, sizeof sets, sets) == 0) return CPU_COUNT_S(sizeof sets, sets);
#endif
    return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

// Every ancestor may set a limit. Inside a container the path may be the path on the host, of which
// only the root exists here; missing groups set no limit.
int detail::quota_cores([[maybe_unused]] const std::string& prefix) {
    long long cores = 0;
#if defined(__linux__)
    std::ifstream membership(prefix + "/proc/self/cgroup");
    for (std::string line; std::getline(membership, line);) {
        // "0::/path" is version 2; "4:cpu,cpuacct:/path" version 1.
        const auto colon = line.find(':'), path_colon = line.find(':', colon + 1);
        if (colon == std::string::npos || path_colon == std::string::npos) continue;
        const std::string names = line.substr(colon + 1, path_colon - colon - 1);
        const bool v2 = names.empty();
        if (!v2 && ("," + names + ",").find(",cpu,") == std::string::npos) continue;
        // With version 1, /sys/fs/cgroup/cpu exists even if other controllers share the hierarchy:
        // it is then a link.
        const std::string mount = prefix + "/sys/fs/cgroup" + (v2 ? "" : "/cpu");
        std::string group = line.substr(path_colon + 1);
        for (;;) {
            const long long quota = group_quota(mount + group, v2);
            if (quota > 0 && (cores == 0 || quota < cores)) cores = quota;
            if (group.empty()) break;
            group.resize(std::min(group.rfind('/'), group.size() - 1));
        }
    }
#endif
    return static_cast<int>(std::min<long long>(cores, max_jobs));
}

void detail::set_poll_period(int milliseconds) {
    poll_period = milliseconds;
    next_poll = {};
}

int usable_cores() {
    const auto variable = [](const char* name) {
        const char* const text = std::getenv(name);
        return text != nullptr ? positive(text) : 0;
    };
    long long cores = variable("EXACTMEANS_NUM_THREADS");
    if (cores == 0) {
        cores = affinity_cores();
        // Read once, because it takes longer than a small fit and rarely changes.
        static const int quota = detail::quota_cores();
        if (quota > 0) cores = std::min<long long>(cores, quota);
        // joblib's limit on the cores of a process.
        if (const long long most = variable("LOKY_MAX_CPU_COUNT"); most > 0)
            cores = std::min(cores, most);
    }
    return static_cast<int>(std::clamp<long long>(cores, 1, max_jobs));
}

}  // namespace exactmeans
