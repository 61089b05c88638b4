// Seeding must agree with plain loops that compute every distance, in the order of operations that
// kernels/seeding.hpp defines.
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "check.hpp"
#include "exactmeans/project/principal_directions.hpp"
#include "exactmeans/seed/csr.hpp"
#include "exactmeans/seed/dense.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

std::vector<const SeedKernels*> tables() {
    std::vector<const SeedKernels*> out;
    for (const Isa* isa : isas()) out.push_back(&isa->seeds);
    return out;
}

template <class R>
double plain_distance2(const R* x, const double* point, Size d, double scale) {
    double stripe[4] = {};
    for (Size f = 0; f < d; ++f) {
        const double apart = double(x[f]) * scale - point[f];
        stripe[f % 4] = std::fma(apart, apart, stripe[f % 4]);
    }
    return (stripe[0] + stripe[2]) + (stripe[1] + stripe[3]);
}

template <class R>
void check_distances(double scale) {
    Random random(1);
    for (const Size d : {1, 2, 3, 4, 5, 7, 8, 54, 101}) {
        for (const Size count : {1, 2, 3, 4, 5, 6, 7, 8, 13, 32}) {
            const Matrix<R> x(9, d, [&] { return random.normal(); });
            const Size pitch = (d + 3) / 4 * 4;
            std::vector<double> points(std::size_t(count * pitch), 0.0);
            for (Size s = 0; s < count; ++s)
                for (Size f = 0; f < d; ++f) points[std::size_t(s * pitch + f)] = random.normal();
            std::vector<const R*> rows;
            for (Size i = 0; i < x.n; ++i) rows.push_back(x.row(i));
            for (const SeedKernels* kernels : tables()) {
                std::vector<double> out(std::size_t(x.n * count));
                kernels->distances2(rows.data(), x.n, {points.data(), count, d, pitch, scale},
                                    out.data());
                for (Size i = 0; i < x.n; ++i)
                    for (Size s = 0; s < count; ++s)
                        CHECK(same_bits(
                            out[std::size_t(i * count + s)],
                            plain_distance2(x.row(i), points.data() + s * pitch, d, scale)));
                std::vector<Size> of_point;
                for (Size i = 0; i < x.n; ++i) of_point.push_back(random.below(count));
                kernels->pairs2(rows.data(), of_point.data(), x.n,
                                {points.data(), count, d, pitch, scale}, out.data());
                for (Size i = 0; i < x.n; ++i) {
                    const double* point = points.data() + of_point[std::size_t(i)] * pitch;
                    CHECK(
                        same_bits(out[std::size_t(i)], plain_distance2(x.row(i), point, d, scale)));
                }
            }
        }
    }
}

// Rows in clusters, some of them equal.
Matrix<double> clustered(Random& random, Size n, Size d) {
    Matrix<double> centres(20, d, [&] { return 10 * random.normal(); }), x(n, d);
    for (Size i = 0; i < n; ++i) {
        const Size c = random.below(20);
        for (Size f = 0; f < d; ++f) x(i, f) = centres(c, f) + random.normal();
        if (i % 50 == 49) std::copy(x.row(i - 1), x.row(i - 1) + d, &x(i, 0));
    }
    return x;
}

std::unique_ptr<SeedBlock> block_of(const DenseRows<double>& x, const Threads&) {
    return std::make_unique<DenseSeedBlock<double>>(x, SeedBlock::Measure{});
}
std::unique_ptr<SeedBlock> block_of(const CsrRows<double, std::int32_t>& x,
                                    const Threads& threads) {
    return std::make_unique<CsrSeedBlock<double, std::int32_t>>(x, SeedBlock::Measure{}, 1.0,
                                                                threads);
}

// A projection along this many axes, or by features if 0.
Projection projection_of(const Matrix<double>& x, Size axes, double range) {
    std::vector<double> rows, along;
    for (Size i = 0; i < std::min<Size>(x.n, 128); ++i)
        rows.insert(rows.end(), x.row(i), x.row(i) + x.d);
    if (axes > 0) along = Directions::leading(rows.data(), Size(rows.size()) / x.d, x.d, axes);
    return Projection(std::vector<double>(std::size_t(x.d), 0.0), along, range, 1);
}

// The number of rows for which the point is pruned if the squared distance of each row to its seed
// is `factor` times that to the point.
Size pruned_rows(const Matrix<double>& x, const std::vector<double>& point, Projection projection,
                 double factor) {
    projection.project(x.rows(), Threads{});
    std::vector<double> padded = point;
    padded.resize(std::size_t((x.d + 3) / 4 * 4), 0.0);
    for (Size i = 0; i < x.n; ++i)
        projection.set_near(i, factor * plain_distance2(x.row(i), point.data(), x.d, 1));
    const SeedPanel panel{padded.data(), 1, x.d, Size(padded.size()), 1};
    std::vector<Size> counts;
    std::vector<std::uint32_t> survives(static_cast<std::size_t>(x.n));
    const auto count = [&] { return Size(std::ranges::count(survives, 0u)); };
    SeedBounds bounds = projection.candidates(panel);
    for (const SeedKernels* kernels : tables()) {
        std::ranges::fill(survives, 0u);
        for (Size i = 0; i < x.n; i += bound_rows)
            kernels->bounds(bounds, projection.tile(i / bound_rows), survives.data() + i);
        counts.push_back(count());
    }
    // The same bounds from the layout by row.
    if (!projection.along_axes()) projection.lay_by_row(Threads{});
    bounds = projection.candidates(panel);
    for (const SeedKernels* kernels : tables()) {
        if (projection.along_axes()) break;
        for (Size i = 0; i < x.n; ++i)
            survives[std::size_t(i)] = kernels->row_bounds(bounds, projection.row(i), 1);
        counts.push_back(count());
    }
    CHECK_EQ(std::ranges::min(counts), std::ranges::max(counts));
    return counts.front();
}

// Runs greedy k-means++ and compares every result with a block that computes all distances. Returns
// the number of distances.
template <class Rows>
Size check_greedy(const Rows& x, Size steps, int n_jobs,
                  const std::vector<Projection>& projections = {}, std::size_t budget = 1 << 20) {
    const Threads threads{n_jobs};
    Random random(5);
    SeedPoints points(x.d, 0, !is_dense<Rows>);
    const auto run = block_of(x, threads), plain = block_of(x, Threads{});
    for (SeedBlock* block : {run.get(), plain.get()}) {
        points.unstage();
        points.stage(x, 3);
        block->accept_all(points, threads);
        block->lay_grid(double(x.n) * block->largest(), x.n, threads);
    }
    points.accept(0);
    for (const Projection& projection : projections) run->project(projection, threads);
    run->set_budget(budget);
    for (Size step = 0; step < steps; ++step) {
        // Without seeds no pair is pruned.
        SeedPoints alone(x.d, 0, !is_dense<Rows>);
        points.unstage();
        for (int s = 0; s < 5; ++s) {
            const Size row = run->find({}, random.unit() * run->total().value());
            CHECK(row < x.n);
            points.stage(x, row);
            alone.stage(x, row);
        }
        const std::vector<SamplingWeight> after = run->totals_after(points, threads);
        Size best = 0;
        for (Size s = 1; s < 5; ++s)
            if (after[std::size_t(s)].value() < after[std::size_t(best)].value()) best = s;
        const double wanted = after[std::size_t(best)].value();
        run->accept(points, best, threads);
        CHECK(same_bits(run->total().value(), wanted));
        const std::vector<SamplingWeight> expected = plain->totals_after(alone, Threads{});
        for (Size s = 0; s < 5; ++s)
            CHECK(same_bits(expected[std::size_t(s)].value(), after[std::size_t(s)].value()));
        plain->accept(alone, best, Threads{});
        points.accept(best);
        CHECK(same_bits(run->d2(), plain->d2()));
    }
    return run->distances();
}

}  // namespace

TEST(all_instruction_sets_give_the_same_distances) {
    check_distances<float>(1);
    check_distances<double>(1);
    check_distances<float>(0.25);
    check_distances<double>(0x1p20);
}

TEST(sampling_weights_sum_exactly_in_any_order) {
    Random random(2);
    std::vector<double> weights;
    for (int i = 0; i < 5000; ++i) weights.push_back(std::exp(20 * random.normal()));
    double total = 0;
    for (const double weight : weights) total += weight;
    const WeightGrid grid(2 * total, Size(weights.size()));
    SamplingWeight forth, back;
    for (const double weight : weights) forth.add(grid.split(weight));
    for (std::size_t i = weights.size(); i-- > 0;) back.add(grid.split(weights[i]));
    CHECK(same_bits(forth.high, back.high) && same_bits(forth.low, back.low));
    CHECK(std::fabs(forth.value() - total) < 1e-9 * total);
    for (const double weight : weights) forth.subtract(grid.split(weight));
    CHECK_EQ(forth.high, 0.0);
    CHECK_EQ(forth.low, 0.0);
}

TEST(find_returns_the_row_where_the_running_total_reaches_the_target) {
    Random random(3);
    const Matrix<double> x = clustered(random, 3000, 4);
    const auto block = block_of(x.rows(), Threads{});
    SeedPoints points(4, 0, false);
    points.stage(x.rows(), 0);
    block->accept_all(points, Threads{});
    points.accept(0);
    block->lay_grid(3000 * block->largest(), 3000, Threads{2});
    const double total = block->total().value();
    for (int t = 0; t < 200; ++t) {
        const double target = random.unit() * total;
        double sum = 0;
        Size row = 0;
        while ((sum += block->sampling_weight(row)) < target) ++row;
        CHECK_EQ(block->find({}, target), row);
    }
    CHECK_EQ(block->find({}, 0.0), Size(0));
    CHECK_EQ(block->find({}, 2 * total), Size(3000));
}

TEST(pruning_changes_no_result_and_saves_most_distances) {
    Random random(4);
    for (const Size d : {2, 30}) {
        const Matrix<double> x = clustered(random, 6000, d);
        const Projection along = projection_of(x, std::min<Size>(d, 12), 60),
                         features = projection_of(x, 0, 30);
        for (const int n_jobs : {1, 3}) {
            const Size first = check_greedy(x.rows(), 40, n_jobs, {along});
            for (const Size distances : {first, check_greedy(x.rows(), 40, n_jobs),
                                         check_greedy(x.rows(), 40, n_jobs, {features})})
                CHECK(distances < 6000 * 5 * 40 / 3);
            // Features prune some pairs that survive the axes.
            CHECK(check_greedy(x.rows(), 40, n_jobs, {along, features}) <= first);
            // With too small a budget, distances to the accepted candidate are computed again.
            check_greedy(x.rows(), 40, n_jobs, {}, 2000);
        }
    }
}

TEST(projections_prune_distant_points_and_never_nearer_ones) {
    Random random(10);
    const Size n = 512;
    for (const Size d : {17, 64, 101}) {
        const Matrix<double> x(n, d, [&] { return random.normal(); });
        std::vector<double> point(static_cast<std::size_t>(d));
        for (double& value : point) value = random.normal();
        for (const Size axes : {Size(0), Size(4), d - 1}) {
            // Fine steps, coarse steps, steps so coarse that all codes are 0, and a range that
            // clamps nearly all coordinates.
            for (const double range : {4.0, 40.0, 1e4, 0.5})
                CHECK_EQ(pruned_rows(x, point, projection_of(x, axes, range), 1 + 1e-12), Size(0));
            if (axes != 4) CHECK(pruned_rows(x, point, projection_of(x, axes, 10), 0.9) > n / 2);
        }
    }
}

TEST(a_point_between_steps_has_slack) {
    // Rows on whole steps have no slack. The point is 0.4 of a fine step nearer to the rows, and is
    // rounded away from them.
    const Size n = 16, d = 20;
    Matrix<double> x(n, d, [] { return 3.0; });
    const std::vector<double> point(std::size_t(d), 0.4 / 256);
    CHECK_EQ(pruned_rows(x, point, projection_of(x, 0, 127), 1 + 1e-12), Size(0));
    CHECK_EQ(pruned_rows(x, point, projection_of(x, 0, 127), 1 - 1e-3), n);
}

TEST(projections_of_rows_far_from_the_origin_have_slack) {
    // Products with axes have errors of a fraction of a step, residuals of many steps.
    Random random(12);
    const Size n = 512, d = 20;
    Matrix<double> x(n, d);
    std::vector<double> axes(std::size_t(2 * d), 0.0);
    axes[0] = axes[1] = axes[std::size_t(d)] = std::sqrt(0.5);
    axes[std::size_t(d + 1)] = -axes[0];
    for (Size i = 0; i < n; ++i) {
        const double along = 0.125 * double(random.below(600));
        x(i, 0) = 5e14 + along;
        x(i, 1) = 5e14 - along;
    }
    const std::vector<double> point(x.row(0), x.row(0) + d);
    const Projection projection(std::vector<double>(std::size_t(d), 0.0), axes, 127, 1);
    CHECK_EQ(pruned_rows(x, point, projection, 1 + 1e-12), Size(0));
}

TEST(row_bounds_agree_for_single_and_all_points) {
    Random random(13);
    const Size n = 64, d = 101, count = 32;
    const Matrix<double> x(n, d, [&] { return random.normal(); });
    Matrix<double> points(count, d + 3);
    for (Size s = 0; s < count; ++s)
        for (Size f = 0; f < d; ++f) points(s, f) = 0.7 * random.normal();
    Projection features = projection_of(x, 0, 4);
    features.project(x.rows(), Threads{});
    features.lay_by_row(Threads{});
    for (Size i = 0; i < n; ++i) features.set_near(i, 1.5 * double(d));
    const SeedBounds bounds = features.candidates({points.row(0), count, d, d + 3, 1});
    Size survivors = 0;
    for (const SeedKernels* kernels : tables())
        for (Size i = 0; i < n; ++i) {
            const std::uint32_t all = kernels->row_bounds(bounds, features.row(i), ~0u);
            for (Size s = 0; s < count; ++s)
                CHECK_EQ(kernels->row_bounds(bounds, features.row(i), 1u << s), all & (1u << s));
            CHECK_EQ(kernels->row_bounds(bounds, features.row(i), 0), 0u);
            survivors += std::popcount(all);
        }
    CHECK(survivors > 0 && survivors < Size(tables().size()) * n * count);
}

TEST(rounding_does_not_prune_long_rows_near_a_point) {
    // Squared norms have more bits than float32, and their difference cancels.
    Random random(11);
    const Size n = 512, d = 3000;
    const auto whole = [&] { return double(random.below(28)) + 100; };
    std::vector<double> point(static_cast<std::size_t>(d));
    for (double& value : point) value = whole();
    Matrix<double> x(n, d);
    for (Size i = 0; i < n; ++i) {
        std::copy(point.begin(), point.end(), &x(i, 0));
        for (int t = 0; t < 5; ++t) x(i, random.below(d)) = whole();
    }
    CHECK_EQ(pruned_rows(x, point, projection_of(x, 0, 127), 1 + 1e-12), Size(0));
    CHECK(pruned_rows(x, point, projection_of(x, 0, 127), 0.01) > n / 2);
}

TEST(transposed_rows_give_the_distances_of_rows) {
    Random random(6);
    Matrix<double> x(9000, 30, [&] { return random.below(4) ? 0.0 : random.normal(); });
    const Csr<double, std::int32_t> csr(x);
    for (const int n_jobs : {1, 3}) check_greedy(csr.rows(), 10, n_jobs);
    SeedPoints points(30, 0, true);
    const auto block = block_of(csr.rows(), Threads{});
    points.stage(csr.rows(), 17);
    block->accept_all(points, Threads{});
    for (Size i = 0; i < x.n; ++i) {
        double wanted = 0;
        for (Size f = 0; f < x.d; ++f) wanted += (x(i, f) - x(17, f)) * (x(i, f) - x(17, f));
        CHECK(std::fabs(block->d2()[std::size_t(i)] - wanted) <= 1e-12 * (1 + wanted));
    }
    CHECK_EQ(block->d2()[17], 0.0);
}

TEST(prefilter_by_rare_features_changes_no_result) {
    // As in text: a few features occur in many rows with small values, many features in few rows.
    Random random(9);
    Matrix<double> x(5000, 120);
    for (Size i = 0; i < x.n; ++i) {
        const Size topic = random.below(30);
        for (Size f = 0; f < 6; ++f) x(i, f) = random.below(2) ? 0.05 * random.unit() : 0.0;
        for (Size t = 0; t < 3; ++t) x(i, 6 + topic * 3 + t) = 0.5 + random.unit();
    }
    const Csr<double, std::int32_t> csr(x);
    for (const int n_jobs : {1, 3}) CHECK(check_greedy(csr.rows(), 120, n_jobs) < 5000 * 5 * 90);
}

TEST(refresh_updates_a_row_for_deferred_seeds) {
    Random random(7);
    const Matrix<double> x = clustered(random, 500, 5);
    const auto block = block_of(x.rows(), Threads{});
    SeedPoints points(5, 0, false), late(5, 0, false);
    points.stage(x.rows(), 0);
    block->accept_all(points, Threads{});
    points.accept(0);
    block->lay_grid(500 * block->largest(), 500, Threads{});
    for (const Size row : {7, 90, 410}) {
        late.unstage();
        late.stage(x.rows(), row);
        late.accept(0);
    }
    for (const Size i : {7, 8, 200}) {
        double wanted = block->sampling_weight(i);
        for (const Size row : {7, 90, 410})
            wanted = std::min(wanted, plain_distance2(x.row(i), x.row(row), 5, 1));
        CHECK(same_bits(block->refresh(late, i), wanted));
    }
    CHECK_THROWS(block->refresh(late, 500), std::invalid_argument);
}

TEST(leading_directions_are_orthonormal) {
    Random random(8);
    const Size n = 80, d = 40;
    Matrix<double> x(n, d, [&] { return random.normal(); });
    for (Size i = 0; i < n; ++i) x(i, 7) *= 100;
    const std::vector<double> found = Directions::leading(x.values.data(), n, d, 6);
    CHECK_EQ(found.size(), std::size_t(6 * d));
    for (Size a = 0; a < 6; ++a)
        for (Size b = 0; b <= a; ++b) {
            double dot = 0;
            for (Size f = 0; f < d; ++f)
                dot += found[std::size_t(a * d + f)] * found[std::size_t(b * d + f)];
            CHECK(std::fabs(dot - (a == b)) < 1e-14);
        }
    CHECK(std::fabs(found[7]) > 0.99);
}

TEST(rows_beyond_32_bits_keep_their_number) {
    constexpr Size row = (Size(1) << 33) + 5;
    CandidateEvaluation evaluation;
    evaluation.begin(1, 1);
    evaluation.record(0, 0, {row, 1.0}, SamplingWeight{});
    CHECK_EQ(evaluation.nearer(0, 0).at(0).row, row);
}

TEST(draws_are_uniform_and_depend_on_key_and_row_only) {
    const BernoulliDraws draws(11), same(11), other(12);
    double sum = 0, both = 0;
    const Size n = 100000;
    for (Size row = 0; row < n; ++row) {
        CHECK(same_bits(draws(row), same(row)));
        CHECK(draws(row) >= 0 && draws(row) < 1);
        sum += draws(row);
        both += (draws(row) < 0.5) == (other(row) < 0.5);
    }
    CHECK(std::fabs(sum / double(n) - 0.5) < 0.005);
    CHECK(std::fabs(both / double(n) - 0.5) < 0.01);
}
