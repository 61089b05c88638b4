// Several assigners use the same centres at once, as blocks of a stream do: they give the labels of
// one assigner alone, without a race (run under ThreadSanitizer). After an interrupted pass, the
// next one gives the right labels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cancel.hpp"
#include "check.hpp"
#include "exactmeans/assign/registry.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size n = 600, d = 24, k = 40;

enum class Kind { dense, csr, csr_and_sparse_centres };

template <class R>
struct Block {
    Matrix<R> x;
    Csr<R, std::int32_t> csr;
    std::vector<double> lengths;

    explicit Block(Random& random)
        : x(n, d, [&] { return random.unit() < 0.3 ? random.normal() : 0.0; }), csr(x) {
        for (Size i = 0; i < n; ++i) lengths.push_back(row_length(x.row(i), d));
    }
    AnyRows rows(Kind kind, Metric metric) const {
        const auto with_lengths = [&](auto rows) {
            if (is_spherical(metric)) rows.norms = lengths.data();
            return AnyRows(rows);
        };
        return kind == Kind::dense ? with_lengths(x.rows()) : with_lengths(csr.rows());
    }
};

template <class R>
Matrix<R> unit_rows(Matrix<R> centres) {
    for (Size j = 0; j < centres.n; ++j) {
        const std::vector<double> own(centres.row(j), centres.row(j) + d);
        direction(own.data(), d, 0, &centres(j, 0));
    }
    return centres;
}

// Centres of one kind, and where they go.
template <class R>
struct SharedCase {
    Kind kind;
    Metric metric;
    Matrix<R> at;
    std::unique_ptr<SharedCentres<R>> shared;

    SharedCase(Kind of, Metric by, Random& random)
        : kind(of), metric(by), at(k, d, [&] { return random.coin() ? random.normal() : 0.0; }) {
        if (is_spherical(metric)) at = unit_rows(at);
        Frame<R> frame;
        frame.metric = metric;
        if (kind == Kind::csr_and_sparse_centres)
            shared =
                std::make_unique<SharedCentres<R>>(Centres<R>(sparse_of(at), d, frame, Threads{}));
        else
            shared = std::make_unique<SharedCentres<R>>(
                Centres<R>(at.values.data(), k, d, frame, Threads{}));
        // Posting lists of rare features, too.
        if (kind == Kind::csr_and_sparse_centres) shared->layouts.set_rare_below(k / 2);
    }
    Movement move(Random& random) {
        for (R& v : at.values) v *= R(1 + 0.05 * random.normal());
        if (is_spherical(metric)) at = unit_rows(at);
        return kind == Kind::csr_and_sparse_centres
                   ? shared->centres.move(sparse_of(at), Threads{})
                   : shared->centres.move(at.values.data(), Threads{});
    }
    // Half of the centres change sign; then the update throws.
    void fail_to_move() {
        const auto check = [](Size j) {
            if (j == k / 2) throw std::bad_alloc();
        };
        if (kind == Kind::csr_and_sparse_centres)
            shared->centres.move(
                [&](Size j, SparseVector<R>& next) {
                    check(j);
                    next = shared->centres.sparse_master(j);
                    for (R& value : next.value) value = -value;
                    return &next;
                },
                {}, 0, Threads{});
        else
            shared->centres.move(
                [&](Size j, R* next) {
                    check(j);
                    for (Size f = 0; f < d; ++f) next[f] = -shared->centres.master(j)[f];
                    return next;
                },
                {}, 0, Threads{});
    }
};

bool can(const Traits& traits, Kind kind, Metric metric) {
    const char* const names[] = {"euclidean", "cosine", "angular", "manhattan"};
    const std::string_view metrics = traits.metrics;
    return (kind == Kind::dense ? traits.dense : traits.csr) &&
           metrics.find(names[int(metric)]) != std::string_view::npos;
}

// fn(traits, kind, metric) for all that can be.
template <class R, class Fn>
void for_all(Fn fn) {
    for (const Registered<R>& entry : registry<R>)
        for (const Kind kind : {Kind::dense, Kind::csr, Kind::csr_and_sparse_centres})
            for (const Metric metric :
                 {Metric::euclidean, Metric::cosine, Metric::angular, Metric::manhattan}) {
                // Medians are dense.
                const bool dense_only =
                    metric == Metric::manhattan && kind == Kind::csr_and_sparse_centres;
                if (can(entry.traits, kind, metric) && !dense_only)
                    fn(std::string(entry.traits.name), kind, metric);
            }
}

template <class R>
void check_two_at_once(const std::string& name, Kind kind, Metric metric) {
    Random random(1);
    const Block<R> blocks[] = {Block<R>(random), Block<R>(random)};
    SharedCase<R> centres(kind, metric, random);
    Labels labels[2], wanted[2];
    std::unique_ptr<Assigner<R>> assigners[2];
    for (int b = 0; b < 2; ++b) {
        labels[b].assign(std::size_t(n), -1);
        wanted[b].assign(std::size_t(n), -1);
        assigners[b] = make_assigner<R>(name, n, k);
    }
    for (int pass = 0; pass < 4; ++pass) {
        if (pass) {
            const Movement movement = centres.move(random);
            for (const auto& assigner : assigners) assigner->moved(movement);
        }
        const auto work = [&](int b) {
            assigners[b]->assign(blocks[b].rows(kind, metric), *centres.shared, labels[b].data(),
                                 Threads{2});
            assigners[b]->labels_certain(*centres.shared, labels[b].data(), Threads{2});
        };
        std::thread other(work, 1);
        work(0);
        other.join();
        for (int b = 0; b < 2; ++b) {
            make_assigner<R>("lloyd", n, k)
                ->assign(blocks[b].rows(kind, metric), *centres.shared, wanted[b].data(),
                         Threads{});
            if (labels[b] != wanted[b]) check::fail(name.c_str(), pass, "labels differ");
        }
    }
}

// A pass is interrupted in one of its first loops: over the centres, or over the rows if another
// block has brought the layout up to date before.
template <class R>
void check_interrupted(const std::string& name, Kind kind, Metric metric) {
    Random random(2);
    const Block<R> block(random), other_block(random);
    const AnyRows rows = block.rows(kind, metric), other_rows = other_block.rows(kind, metric);
    SharedCase<R> centres(kind, metric, random);
    const auto assigner = make_assigner<R>(name, n, k), other = make_assigner<R>(name, n, k);
    Labels labels(std::size_t(n), -1), other_labels(labels), wanted(labels);
    const auto assign = [&](Assigner<R>& by, const AnyRows& of, Labels& to, int step) {
        by.assign(of, *centres.shared, to.data(), Threads{2});
        make_assigner<R>("lloyd", n, k)->assign(of, *centres.shared, wanted.data(), Threads{});
        if (to != wanted) check::fail(name.c_str(), step, "labels differ");
    };
    int interrupted = 0;
    for (int step = 0; step < 12; ++step) {
        if (step) {
            const Movement movement = centres.move(random);
            assigner->moved(movement);
            other->moved(movement);
        }
        if (step % 2) assign(*other, other_rows, other_labels, step);
        if (step % 3) {
            CancelAfter cancel(step % 4);
            try {
                assigner->assign(rows, *centres.shared, labels.data(), Threads{1, cancel});
            } catch (const Interrupted&) {
                ++interrupted;
            }
        }
        // The pass is made again, or the centres move on without it.
        if (step % 3 != 1) assign(*assigner, rows, labels, step);
        if (step % 2 == 0) assign(*other, other_rows, other_labels, step);
    }
    CHECK(interrupted >= 4);  // of eight; short passes end before the third chunk
}

// An exception ends an update of the centres in the middle, so moved() is not called.
template <class R>
void check_failed_move(const std::string& name, Kind kind, Metric metric) {
    Random random(3);
    const Block<R> block(random);
    const AnyRows rows = block.rows(kind, metric);
    SharedCase<R> centres(kind, metric, random);
    const auto assigner = make_assigner<R>(name, n, k);
    Labels labels(std::size_t(n), -1), wanted(labels);
    for (int step = 0; step < 4; ++step) {
        if (step) assigner->moved(centres.move(random));
        assigner->assign(rows, *centres.shared, labels.data(), Threads{2});
    }
    CHECK_THROWS(centres.fail_to_move(), std::bad_alloc);
    for (int again = 0; again < 2; ++again) {
        if (again) assigner->moved(centres.move(random));
        if (assigner->labels_certain(*centres.shared, labels.data(), Threads{}) && !again)
            check::fail(name.c_str(), again, "labels cannot be certain");
        assigner->assign(rows, *centres.shared, labels.data(), Threads{2});
        make_assigner<R>("lloyd", n, k)->assign(rows, *centres.shared, wanted.data(), Threads{});
        if (labels != wanted) check::fail(name.c_str(), again, "labels differ");
    }
}

}  // namespace

TEST(two_at_once_float) { for_all<float>(check_two_at_once<float>); }
TEST(two_at_once_double) { for_all<double>(check_two_at_once<double>); }

TEST(passes_that_are_interrupted) {
    for_all<float>([](const std::string& name, Kind kind, Metric metric) {
        if (metric == Metric::euclidean) check_interrupted<float>(name, kind, metric);
    });
}

TEST(updates_of_centres_that_fail) {
    for_all<float>([](const std::string& name, Kind kind, Metric metric) {
        if (metric == Metric::euclidean) check_failed_move<float>(name, kind, metric);
    });
}

// Bounds of old groups say nothing of new ones. Centres change places, so that groups which are
// made anew differ, and then some jump to rows of other clusters.
TEST(bounds_begin_anew_with_new_groups) {
    Random random(5);
    Matrix<float> places(k, d);  // in a plane, so that some are near and others far
    for (Size j = 0; j < k; ++j)
        for (Size f = 0; f < 2; ++f) places(j, f) = float(10 * random.normal());
    Matrix<float> x(n, d);
    for (Size i = 0; i < n; ++i)
        for (Size f = 0; f < d; ++f) x(i, f) = places(i % k, f) + float(0.05 * random.normal());
    for (const char* name : {"yinyang", "pca"}) {
        Matrix<float> centres = places;
        SharedCentres<float> shared(Centres<float>(centres.values.data(), k, d, {}, Threads{}));
        const auto assigner = make_assigner<float>(name, n, k);
        Labels labels(std::size_t(n), -1), wanted(labels);
        const auto pass = [&] {
            const AssignStats tally = assigner->assign(x.rows(), shared, labels.data(), Threads{});
            make_assigner<float>("lloyd", n, k)->assign(x.rows(), shared, wanted.data(), Threads{});
            CHECK(labels == wanted);
            return tally;
        };
        const auto move = [&] {
            assigner->moved(shared.centres.move(centres.values.data(), Threads{}));
        };
        pass();
        for (Size j = 0; j < k; ++j) std::copy_n(places.row((j * 7 + 3) % k), d, &centres(j, 0));
        for (int again = 0; again < 2; ++again) {
            move();
            pass();
        }
        CHECK(pass().skipped == n);  // bounds are tight
        // The cache makes the groups again.
        shared.layouts.set_rare_below(-1);
        for (int jump = 0; jump < 10; ++jump) {
            const Size j = random.below(k);
            const auto far2 = [&](Size i) {
                return std::pow(x(i, 0) - centres(j, 0), 2) + std::pow(x(i, 1) - centres(j, 1), 2);
            };
            Size nearest = -1;  // row of another cluster
            for (Size i = 0; i < n; ++i)
                if (labels[std::size_t(i)] != j && (nearest < 0 || far2(i) < far2(nearest)))
                    nearest = i;
            std::copy_n(x.row(nearest), d, &centres(j, 0));
            move();
            pass();
        }
    }
}
