// Centroids that several assigners read at once, as blocks of a stream do: the labels of one
// assigner alone, and no race (run under ThreadSanitizer). And layouts, slack and bounds whose
// making was interrupted: nothing half made passes for complete.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

template <class R>
std::vector<SparseVector<R>> sparse_of(const Matrix<R>& centres) {
    std::vector<SparseVector<R>> out(static_cast<std::size_t>(centres.n));
    for (Size j = 0; j < centres.n; ++j)
        for (Size f = 0; f < d; ++f)
            if (centres(j, f) != 0) out[std::size_t(j)].push(f, centres(j, f));
    return out;
}

// Centres of one kind, and where they go.
template <class R>
struct SharedCase {
    Kind kind;
    Metric metric;
    Matrix<R> at;
    std::unique_ptr<Centres<R>> made;

    SharedCase(Kind of, Metric by, Random& random)
        : kind(of), metric(by), at(k, d, [&] { return random.coin() ? random.normal() : 0.0; }) {
        if (is_spherical(metric)) at = unit_rows(at);
        Frame<R> frame;
        frame.metric = metric;
        if (kind == Kind::csr_and_sparse_centres)
            made = std::make_unique<Centres<R>>(sparse_of(at), d, frame, Threads{});
        else
            made = std::make_unique<Centres<R>>(at.values.data(), k, d, frame, Threads{});
        // Lists of rare features, too.
        if (kind == Kind::csr_and_sparse_centres) made->set_rare_below(k / 2);
    }
    Movement move(Random& random) {
        for (R& v : at.values) v *= R(1 + 0.05 * random.normal());
        if (is_spherical(metric)) at = unit_rows(at);
        return kind == Kind::csr_and_sparse_centres ? made->move(sparse_of(at), Threads{})
                                                    : made->move(at.values.data(), Threads{});
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
            assigners[b]->assign(blocks[b].rows(kind, metric), *centres.made, labels[b].data(),
                                 Threads{2});
            assigners[b]->labels_certain(*centres.made, labels[b].data(), Threads{2});
        };
        std::thread other(work, 1);
        work(0);
        other.join();
        for (int b = 0; b < 2; ++b) {
            make_assigner<R>("lloyd", n, k)
                ->assign(blocks[b].rows(kind, metric), *centres.made, wanted[b].data(), Threads{});
            if (labels[b] != wanted[b]) check::fail(name.c_str(), pass, "labels differ");
        }
    }
}

// Polls are due every 50 ms; then the next loop over ranges is interrupted before it begins.
void make_poll_due() { std::this_thread::sleep_for(std::chrono::milliseconds(51)); }

// The first loop of a pass is interrupted: over the centres, or over the rows if another block has
// brought the layout up to date before.
template <class R>
void check_interrupted(const std::string& name, Kind kind, Metric metric) {
    Random random(2);
    const Block<R> block(random), other_block(random);
    const AnyRows rows = block.rows(kind, metric), other_rows = other_block.rows(kind, metric);
    SharedCase<R> centres(kind, metric, random);
    const auto assigner = make_assigner<R>(name, n, k), other = make_assigner<R>(name, n, k);
    Labels labels(std::size_t(n), -1), other_labels(labels), wanted(labels);
    const auto assign = [&](Assigner<R>& by, const AnyRows& of, Labels& to, int step) {
        by.assign(of, *centres.made, to.data(), Threads{2});
        make_assigner<R>("lloyd", n, k)->assign(of, *centres.made, wanted.data(), Threads{});
        if (to != wanted) check::fail(name.c_str(), step, "labels differ");
    };
    for (int step = 0; step < 12; ++step) {
        if (step) {
            const Movement movement = centres.move(random);
            assigner->moved(movement);
            other->moved(movement);
        }
        if (step % 2) assign(*other, other_rows, other_labels, step);
        if (step % 3) {
            const auto stop = [] { return true; };
            make_poll_due();
            CHECK_THROWS(assigner->assign(rows, *centres.made, labels.data(), Threads{1, stop}),
                         Interrupted);
        }
        // The pass is made again, or the centres move on without it.
        if (step % 3 != 1) assign(*assigner, rows, labels, step);
        if (step % 2 == 0) assign(*other, other_rows, other_labels, step);
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

// A layout whose making is interrupted is not taken for complete.
TEST(layouts_that_are_interrupted) {
    Random random(3);
    SharedCase<double> centres(Kind::dense, Metric::euclidean, random);
    (void)centres.made->laid_out<Groups<double>>(true, Threads{});
    centres.move(random);
    const auto stop = [] { return true; };
    make_poll_due();
    CHECK_THROWS(centres.made->laid_out<Groups<double>>(true, Threads{1, stop}), Interrupted);
    const auto groups = centres.made->laid_out<Groups<double>>(true, Threads{});
    CHECK(groups->count() > 1);
    for (Size g = 0; g < groups->count(); ++g) {
        const auto panel = groups->panels().panel(g);
        for (Size t = 0; t < groups->size(g); ++t)
            for (Size f = 0; f < d; ++f)
                CHECK_EQ(groups->panels().values[panel.first * d + f * panel.width() + t],
                         -centres.at(groups->centre(panel.first + t), f));
    }
}

// Whoever holds a layout may go on with it after another one took its place.
TEST(layouts_outlive_their_replacement) {
    Random random(4);
    SharedCase<float> centres(Kind::dense, Metric::euclidean, random);
    const auto groups = centres.made->laid_out<Groups<float>>(true, Threads{});
    const std::vector<float> before(groups->panels().values, groups->panels().values + k * d);
    (void)centres.made->laid_out<SingleCentres<float>>(true, Threads{});
    CHECK(before == std::vector<float>(groups->panels().values, groups->panels().values + k * d));
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
        Centres<float> centroids(centres.values.data(), k, d, {}, Threads{});
        const auto assigner = make_assigner<float>(name, n, k);
        Labels labels(std::size_t(n), -1), wanted(labels);
        const auto pass = [&] {
            const AssignStats tally =
                assigner->assign(x.rows(), centroids, labels.data(), Threads{});
            make_assigner<float>("lloyd", n, k)
                ->assign(x.rows(), centroids, wanted.data(), Threads{});
            CHECK(labels == wanted);
            return tally;
        };
        const auto move = [&] {
            assigner->moved(centroids.move(centres.values.data(), Threads{}));
        };
        pass();
        for (Size j = 0; j < k; ++j) std::copy_n(places.row((j * 7 + 3) % k), d, &centres(j, 0));
        for (int again = 0; again < 2; ++again) {
            move();
            pass();
        }
        CHECK(pass().skipped == n);  // bounds are tight
        // A layout of another kind takes the place of the groups.
        (void)centroids.laid_out<Groups<float>>(false, Threads{});
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
