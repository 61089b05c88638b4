// No separate test checks that parked helpers do not keep the process alive: this executable leaves
// hundreds of them, and the test runner has a time limit.
#include "exactmeans/base/parallel.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "check.hpp"

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__SANITIZE_THREAD__)
#define EXACTMEANS_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EXACTMEANS_TSAN
#endif
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace exactmeans;
using namespace std::chrono_literals;

namespace {

struct Oops : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Waits until all `n` threads have arrived, or gives up, because a test must fail, not hang.
class Rendezvous {
public:
    explicit Rendezvous(int n) : missing_(n) {}

    bool arrive_and_wait() {
        --missing_;
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (missing_ > 0 && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(1ms);
        }
        return missing_ <= 0;
    }

private:
    std::atomic<int> missing_;
};

long long sum_in_parallel(int n_jobs, std::ptrdiff_t n_chunks) {
    std::atomic<long long> sum{0};
    parallel_for(n_jobs, n_chunks, [&](std::ptrdiff_t chunk, int) { sum += chunk; });
    return sum;
}

double half_of_smallest_normal() {
    volatile double smallest = std::numeric_limits<double>::min();
    return smallest / 2;
}

double read_subnormal() {
    volatile double subnormal = std::numeric_limits<double>::denorm_min();
    return subnormal * 1024;
}

bool rounds_to_nearest() {
    volatile double one = 1, tiny = 1e-30;
    return one + tiny == 1 && -one - tiny == -1 && one - tiny == 1 && -one + tiny == -1;
}

void check_float_environment() {
    CHECK(half_of_smallest_normal() > 0);
    CHECK(read_subnormal() > 0);
    CHECK(rounds_to_nearest());
}

}  // namespace

TEST(every_chunk_runs_once) {
    for (const int n_jobs : {1, 2, 3, 7, 64}) {
        for (const int n_chunks : {0, 1, 2, 3, 6, 7, 8, 1000}) {
            std::vector<int> runs(static_cast<std::size_t>(n_chunks), 0);
            parallel_for(n_jobs, n_chunks, [&](std::ptrdiff_t chunk, int) {
                ++runs[static_cast<std::size_t>(chunk)];
            });
            CHECK_EQ(std::count(runs.begin(), runs.end(), 1), n_chunks);
        }
    }
}

TEST(threads_really_run_at_once) {
    // More threads than a small machine has cores: each chunk waits for all the others.
    Rendezvous all(7);
    std::atomic<int> met{0};
    parallel_for(7, 7, [&](std::ptrdiff_t, int) { met += all.arrive_and_wait(); });
    CHECK_EQ(met, 7);
}

TEST(worker_numbers_are_unique_and_in_range) {
    constexpr int n_jobs = 7;
    for (int repeat = 0; repeat < 50; ++repeat) {
        std::array<std::atomic<int>, n_jobs> running{};
        std::array<std::atomic<std::size_t>, n_jobs> owner{};
        parallel_for(n_jobs, 200, [&](std::ptrdiff_t chunk, int worker) {
            CHECK(worker >= 0 && worker < n_jobs);
            const auto w = static_cast<std::size_t>(worker);
            CHECK_EQ(running[w]++, 0);
            const auto me = std::hash<std::thread::id>()(std::this_thread::get_id());
            const auto before = owner[w].exchange(me);
            CHECK(before == 0 || before == me);
            if (chunk % 16 == 0) std::this_thread::sleep_for(10us);
            --running[w];
        });
    }
    parallel_for(100, 3, [&](std::ptrdiff_t, int worker) { CHECK(worker < 3); });
}

TEST(one_job_or_one_chunk_stays_on_the_calling_thread) {
    const auto caller = std::this_thread::get_id();
    const auto body = [&](std::ptrdiff_t, int worker) {
        CHECK(std::this_thread::get_id() == caller);
        CHECK_EQ(worker, 0);
    };
    parallel_for(1, 100, body);
    parallel_for(8, 1, body);
}

TEST(results_of_helpers_are_visible) {
    // Plain writes, read by the caller; ThreadSanitizer would report a race.
    std::vector<long long> per_worker(4);
    std::vector<std::ptrdiff_t> per_chunk(500);
    parallel_for(4, 500, [&](std::ptrdiff_t chunk, int worker) {
        per_worker[static_cast<std::size_t>(worker)] += chunk;
        per_chunk[static_cast<std::size_t>(chunk)] = chunk;
    });
    CHECK_EQ(std::accumulate(per_worker.begin(), per_worker.end(), 0LL), 500LL * 499 / 2);
    CHECK_EQ(std::accumulate(per_chunk.begin(), per_chunk.end(), 0LL), 500LL * 499 / 2);
}

TEST(number_of_jobs_is_checked_and_capped) {
    CHECK_THROWS(sum_in_parallel(0, 10), std::invalid_argument);
    CHECK_THROWS(sum_in_parallel(-1, 10), std::invalid_argument);
    // Long enough for an excess thread to join.
    Rendezvous enough(max_jobs);
    parallel_for(1'000'000, 2 * max_jobs, [&](std::ptrdiff_t, int worker) {
        CHECK(worker < max_jobs);
        CHECK(enough.arrive_and_wait());
        std::this_thread::sleep_for(5ms);
    });
}

TEST(an_exception_reaches_the_caller_and_stops_the_rest) {
    for (const int n_jobs : {1, 2, 7}) {
        std::atomic<int> runs{0};
        const auto body = [&](std::ptrdiff_t chunk, int) {
            ++runs;
            if (chunk == 20) throw Oops("chunk 20");
            std::this_thread::sleep_for(50us);
        };
        CHECK_THROWS(parallel_for(n_jobs, 100'000, body), Oops);
        CHECK(runs >= 21);
        CHECK(runs < 50'000);
        CHECK_EQ(sum_in_parallel(n_jobs, 100), 4950);
    }
}

TEST(an_exception_of_a_helper_reaches_the_caller) {
    const auto caller = std::this_thread::get_id();
    Rendezvous both(2);
    const auto body = [&](std::ptrdiff_t, int) {
        CHECK(both.arrive_and_wait());
        if (std::this_thread::get_id() != caller) throw Oops("from a helper");
    };
    std::string message;
    try {
        parallel_for(2, 2, body);
    } catch (const Oops& error) {
        message = error.what();
    }
    CHECK_EQ(message, "from a helper");
}

TEST(the_caller_waits_for_running_chunks_before_it_throws) {
    Rendezvous both(2);
    std::atomic<bool> slow_ended{false};
    const auto body = [&](std::ptrdiff_t chunk, int) {
        both.arrive_and_wait();
        if (chunk == 0) throw Oops("at once");
        std::this_thread::sleep_for(50ms);
        slow_ended = true;
    };
    CHECK_THROWS(parallel_for(2, 2, body), Oops);
    CHECK(slow_ended);
}

TEST(many_exceptions_at_once) {
    for (int repeat = 0; repeat < 200; ++repeat) {
        CHECK_THROWS(parallel_for(4, 64, [](std::ptrdiff_t, int) { throw Oops("all of them"); }),
                     Oops);
    }
}

TEST(nested_calls_run_inline) {
    std::atomic<int> inner{0};
    for (const int n_jobs : {1, 4}) {
        inner = 0;
        parallel_for(n_jobs, 8, [&](std::ptrdiff_t, int) {
            const auto outer = std::this_thread::get_id();
            parallel_for(4, 8, [&](std::ptrdiff_t, int worker) {
                CHECK(std::this_thread::get_id() == outer);
                CHECK_EQ(worker, 0);
                ++inner;
            });
        });
        CHECK_EQ(inner, 64);
    }
    const auto nested_throw = [](std::ptrdiff_t, int) {
        parallel_for(4, 8, [](std::ptrdiff_t, int) { throw Oops("inner"); });
    };
    CHECK_THROWS(parallel_for(4, 8, nested_throw), Oops);
    // Afterwards calls are parallel again.
    Rendezvous both(2);
    parallel_for(2, 2, [&](std::ptrdiff_t, int) { CHECK(both.arrive_and_wait()); });
}

TEST(concurrent_callers_all_finish) {
    std::vector<std::thread> callers;
    for (int c = 0; c < 6; ++c) {
        callers.emplace_back([c] {
            for (int repeat = 0; repeat < 200; ++repeat) {
                const int n_chunks = 1 + (repeat * 7 + c) % 40;
                if (repeat % 10 == c) {
                    CHECK_THROWS(
                        parallel_for(3, n_chunks, [](std::ptrdiff_t, int) { throw Oops("c"); }),
                        Oops);
                }
                CHECK_EQ(sum_in_parallel(1 + c, n_chunks), 1LL * n_chunks * (n_chunks - 1) / 2);
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
}

TEST(a_caller_progresses_while_the_helpers_are_taken) {
    // The first call occupies every helper that exists until the second has finished.
    std::atomic<bool> second_done{false};
    Rendezvous started(2);
    std::thread first([&] {
        parallel_for(max_jobs, max_jobs, [&](std::ptrdiff_t chunk, int) {
            if (chunk == 0) started.arrive_and_wait();
            for (int wait = 0; wait < 10'000 && !second_done; ++wait) {
                std::this_thread::sleep_for(1ms);
            }
            CHECK(second_done);
        });
    });
    started.arrive_and_wait();
    CHECK_EQ(sum_in_parallel(4, 100), 4950);
    second_done = true;
    first.join();
}

TEST(poll_cancels_between_chunks) {
    for (const int n_jobs : {1, 3}) {
        const auto caller = std::this_thread::get_id();
        std::atomic<int> runs{0};
        int polls = 0;
        const auto body = [&](std::ptrdiff_t, int) {
            ++runs;
            std::this_thread::sleep_for(1ms);
        };
        const auto poll = [&] {
            CHECK(std::this_thread::get_id() == caller);
            return ++polls == 3;
        };
        const auto start = std::chrono::steady_clock::now();
        CHECK_THROWS(parallel_for(n_jobs, 100'000, body, poll), Interrupted);
        const auto took = std::chrono::steady_clock::now() - start;
        CHECK_EQ(polls, 3);
        CHECK(runs > 0 && runs < 50'000);
        CHECK(took >= 90ms && took < 5s);  // three polls lie two periods apart
    }
}

TEST(poll_cancels_while_waiting_for_helpers) {
    const auto caller = std::this_thread::get_id();
    Rendezvous both(2);
    std::atomic<int> polls{0};
    const auto body = [&](std::ptrdiff_t, int) {
        CHECK(both.arrive_and_wait());
        if (std::this_thread::get_id() == caller) return;
        for (int wait = 0; wait < 10'000 && polls < 2; ++wait) std::this_thread::sleep_for(1ms);
        CHECK(polls >= 2);
    };
    CHECK_THROWS(parallel_for(2, 2, body, [&] { return ++polls == 2; }), Interrupted);
}

TEST(poll_is_not_called_too_often) {
    int polls = 0;
    const auto poll = [&] {
        ++polls;
        return false;
    };
    const auto start = std::chrono::steady_clock::now();
    // Short calls: the period counts across calls, so that some of them are polled, but not all.
    while (std::chrono::steady_clock::now() < start + 300ms) {
        parallel_for(2, 4, [](std::ptrdiff_t, int) {}, poll);
    }
    const auto took = std::chrono::steady_clock::now() - start;
    CHECK(polls >= 2);
    CHECK(polls <= took / 50ms + 1);
}

TEST(what_poll_throws_is_rethrown_and_wins) {
    std::this_thread::sleep_for(60ms);  // makes the next poll due
    const auto body = [](std::ptrdiff_t, int) { throw std::logic_error("body"); };
    CHECK_THROWS(parallel_for(2, 1000, body, []() -> bool { throw Oops("poll"); }), Oops);
    CHECK_EQ(sum_in_parallel(2, 100), 4950);
}

TEST(nested_calls_do_not_poll) {
    parallel_for(2, 4, [](std::ptrdiff_t, int) {
        std::this_thread::sleep_for(60ms);
        parallel_for(2, 4, [](std::ptrdiff_t, int) {}, [] { return true; });
    });
}

#if defined(__x86_64__) || defined(__aarch64__)
namespace {

#if defined(__aarch64__)
// FPCR: FZ, RMode up.
constexpr std::uint64_t flush_and_round_up = (1u << 24) | (1u << 22);
std::uint64_t read_control() {
    std::uint64_t bits;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
}
void write_control(std::uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
// MXCSR: flush-to-zero, denormals-are-zero, rounding up.
constexpr unsigned flush_and_round_up = 0x8000 | 0x0040 | 0x4000;
unsigned read_control() { return _mm_getcsr(); }
void write_control(unsigned bits) { _mm_setcsr(bits); }
#endif

}  // namespace

TEST(float_environment_is_set_and_restored) {
    const auto original = read_control();
    write_control(original | flush_and_round_up);
    const auto changed = read_control();
    CHECK_EQ(half_of_smallest_normal(), 0.0);
    CHECK_EQ(read_subnormal(), 0.0);
    CHECK(!rounds_to_nearest());
    {
        const FloatEnvironment guard;
        check_float_environment();
    }
    CHECK_EQ(half_of_smallest_normal(), 0.0);
    CHECK(!rounds_to_nearest());
    write_control(changed);
    // Bodies leave every helper in the wrong state; later bodies must not see it.
    for (int repeat = 0; repeat < 2; ++repeat) {
        Rendezvous all(max_jobs);
        parallel_for(max_jobs, max_jobs, [&](std::ptrdiff_t, int) {
            check_float_environment();
            CHECK(all.arrive_and_wait());
            write_control(changed);
        });
    }
    CHECK_EQ(read_control(), changed);
    parallel_for(1, 2, [](std::ptrdiff_t, int) { check_float_environment(); });
    CHECK_EQ(read_control(), changed);
    CHECK_THROWS(parallel_for(2, 2, [](std::ptrdiff_t, int) { throw Oops(""); }), Oops);
    CHECK_EQ(read_control(), changed);
    write_control(original);
}
#endif

TEST(float_environment_of_bodies) {
    parallel_for(4, 100, [](std::ptrdiff_t, int) { check_float_environment(); });
}

// ThreadSanitizer does not support threads in the child of a process that had some, nor does qemu's
// user mode, which aborts when the child starts one.
#if !defined(_WIN32) && !defined(EXACTMEANS_TSAN) && !defined(EXACTMEANS_QEMU)
namespace {

// True when the child ended by itself with status 0 within ten seconds.
bool child_succeeds(pid_t child) {
    for (int wait = 0; wait < 1000; ++wait) {
        int status = 0;
        if (waitpid(child, &status, WNOHANG) == child) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        std::this_thread::sleep_for(10ms);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return false;
}

// In the child: helpers must exist again, not only the calling thread.
[[noreturn]] void run_child() {
    Rendezvous all(3);
    std::atomic<int> met{0};
    parallel_for(3, 3, [&](std::ptrdiff_t, int) { met += all.arrive_and_wait(); });
    _exit(met == 3 && sum_in_parallel(4, 1000) == 499'500 ? 0 : 1);
}

}  // namespace

TEST(a_forked_child_gets_its_own_pool) {
    CHECK_EQ(sum_in_parallel(4, 100), 4950);
    const pid_t child = fork();
    if (child == 0) run_child();
    CHECK(child_succeeds(child));
    CHECK_EQ(sum_in_parallel(4, 100), 4950);
    Rendezvous all(3);
    parallel_for(3, 3, [&](std::ptrdiff_t, int) { CHECK(all.arrive_and_wait()); });
}

TEST(fork_while_others_hold_the_pool) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> busy;
    for (int c = 0; c < 3; ++c) {
        busy.emplace_back([&] {
            while (!stop) CHECK_EQ(sum_in_parallel(4, 20), 190);
        });
    }
    bool succeeded = true;
    for (int repeat = 0; repeat < 20 && succeeded; ++repeat) {
        const pid_t child = fork();
        if (child == 0) run_child();
        succeeded = child_succeeds(child);
    }
    CHECK(succeeded);
    stop = true;
    for (std::thread& caller : busy) caller.join();
}
#endif

TEST(usable_cores_obeys_the_environment_variable) {
#if !defined(_WIN32)
    unsetenv("EXACTMEANS_NUM_THREADS");
    const int cores = usable_cores();
    CHECK(cores >= 1 && cores <= max_jobs);
    const std::array<std::pair<const char*, int>, 8> cases{{{"3", 3},
                                                            {"1", 1},
                                                            {"100000", max_jobs},
                                                            {"0", cores},
                                                            {"-2", cores},
                                                            {"", cores},
                                                            {"4x", cores},
                                                            {"99999999999999999999", cores}}};
    for (const auto& [value, wanted] : cases) {
        setenv("EXACTMEANS_NUM_THREADS", value, 1);
        CHECK_EQ(usable_cores(), wanted);
    }
    unsetenv("EXACTMEANS_NUM_THREADS");
#endif
}

#if defined(__linux__)
TEST(usable_cores_obeys_the_affinity_mask) {
    cpu_set_t before, one;
    CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK_EQ(usable_cores(), 1);
    CHECK_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    CHECK(usable_cores() <= CPU_COUNT(&before));
}

namespace {

class FakeRoot {
public:
    FakeRoot() {
        const std::string name = "quota-" + std::string(6, 'X');  // mkdtemp's places to fill in
        std::string pattern = (std::filesystem::temp_directory_path() / name).string();
        path = mkdtemp(pattern.data());
    }
    ~FakeRoot() { std::filesystem::remove_all(path); }
    FakeRoot(const FakeRoot&) = delete;
    FakeRoot& operator=(const FakeRoot&) = delete;

    void write(const std::string& file, const std::string& text) const {
        std::filesystem::create_directories(std::filesystem::path(path + file).parent_path());
        std::ofstream(path + file) << text << "\n";
    }

    std::string path;
};

}  // namespace

TEST(quota_of_cgroup_v2) {
    const FakeRoot root;
    CHECK_EQ(detail::quota_cores(root.path), 0);
    root.write("/proc/self/cgroup", "0::/user/app");
    root.write("/sys/fs/cgroup/user/app/cpu.max", "max 100000");
    CHECK_EQ(detail::quota_cores(root.path), 0);
    root.write("/sys/fs/cgroup/user/app/cpu.max", "250000 100000");
    CHECK_EQ(detail::quota_cores(root.path), 3);
    root.write("/sys/fs/cgroup/user/cpu.max", "150000 100000");  // the parent is stricter
    CHECK_EQ(detail::quota_cores(root.path), 2);
    root.write("/sys/fs/cgroup/cpu.max", "1000 100000");
    CHECK_EQ(detail::quota_cores(root.path), 1);
}

TEST(quota_of_a_container_that_shows_the_path_of_its_host) {
    const FakeRoot root;
    root.write("/proc/self/cgroup", "0::/host/only/path");
    root.write("/sys/fs/cgroup/cpu.max", "400000 100000");
    CHECK_EQ(detail::quota_cores(root.path), 4);
}

TEST(quota_of_cgroup_v1) {
    const FakeRoot root;
    root.write("/proc/self/cgroup", "5:cpuset:/\n4:cpu,cpuacct:/job\n0::/");
    root.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1");
    root.write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
    CHECK_EQ(detail::quota_cores(root.path), 0);
    root.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200001");
    CHECK_EQ(detail::quota_cores(root.path), 3);
}
#endif
