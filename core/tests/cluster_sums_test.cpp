#include "exactmeans/update/cluster_sums.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "check.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// The grid that a fit would choose for these rows.
template <class Rows>
Bins grid_for(const Rows& x) {
    std::vector<double> bounds(is_dense<Rows> ? std::size_t(x.d) : 1);
    for (Size i = 0; i < x.n; ++i) {
        const auto raise = [&](Size f, double value) {
            double& bound = bounds[is_dense<Rows> ? std::size_t(f) : 0];
            bound = std::max(bound, std::fabs(x.weight(i) * value));
        };
        if constexpr (is_dense<Rows>) {
            for (Size f = 0; f < x.d; ++f) raise(f, double(x.at(i, f)));
        } else {
            const auto row = x.row(i);
            for (Size t = 0; t < row.nonzeros; ++t) raise(0, double(row.value[t]));
        }
    }
    Bins grid(bounds, x.n);
    grid.set_bins(bins_needed(x, grid, 0, x.n));
    return grid;
}

Bins weight_grid_for(const double* weights, Size n) {
    if (!weights) return Bins({1.0}, n);
    Bins grid({*std::max_element(weights, weights + n)}, n);
    const DenseRows<double> column{weights, n, 1, 1, 1, nullptr};
    grid.set_bins(bins_needed(column, grid, 0, n));
    return grid;
}

template <class Rows>
Sums sums_for(const Rows& x, Size k) {
    return Sums(k, x.d, grid_for(x), weight_grid_for(x.weights, x.n));
}

Labels random_labels(Random& random, Size n, Size k) {
    Labels labels(static_cast<std::size_t>(n));
    for (std::int32_t& label : labels) label = std::int32_t(random.below(k));
    return labels;
}

bool equal(const Sums& a, const Sums& b) {
    return same_bits(a.bins(), b.bins()) && same_bits(a.weight_bins(), b.weight_bins()) &&
           a.members() == b.members();
}

// The reference: row by row on one thread.
template <class Rows>
Sums one_by_one(const Rows& x, Size k, const Labels& labels) {
    Sums sums = sums_for(x, k);
    for (Size i = 0; i < x.n; ++i) sums.move(x, i, labels[std::size_t(i)], 1.0);
    return sums;
}

// Sparse sums must have the values of dense ones, and the same bits of means and explained scatter.
template <class Rows>
void check_sparse(const Rows& x, Size k, const std::vector<Labels>& labellings,
                  const std::vector<Sums>& wanted) {
    using R = typename Rows::Real;
    for (int n_jobs = 1; n_jobs <= 3; ++n_jobs) {
        Sums running(k, x.d, wanted[0].grid(), weight_grid_for(x.weights, x.n), true);
        Labels summed(static_cast<std::size_t>(x.n), -1);
        std::vector<SparseVector<R>> before(static_cast<std::size_t>(k));
        for (std::size_t t = 0; t < labellings.size(); ++t) {
            running.relabel(x, labellings[t].data(), summed.data(), Threads{n_jobs});
            CHECK(equal(running, wanted[t]));
            for (Size j = 0; j < k; ++j) {
                if (!(running.weight(j) > 0)) continue;
                std::vector<R> dense(static_cast<std::size_t>(x.d)), old(dense), got(dense);
                wanted[t].mean(j, dense.data());
                running.mean(j, got.data());
                CHECK(same_bits(dense, got));
                SparseVector<R>& last = before[std::size_t(j)];
                for (Size e = 0; e < last.size(); ++e)
                    old[last.feature[std::size_t(e)]] = last.value[std::size_t(e)];
                const std::vector<double> origin(dense.size());
                CHECK(same_bits(wanted[t].explained(j, old.data(), origin.data(), 0),
                                running.explained(j, last, 0)));
                running.mean(j, last);
                for (const R value : last.value) CHECK(value != 0);
            }
            // Relocating a row and back changes nothing.
            running.move(x, 0, k - 1, 1.0);
            running.move(x, 0, k - 1, -1.0);
            CHECK(equal(running, wanted[t]));
        }
        Sums twice = running;
        twice.add(running);
        const std::vector<double> once = running.bins(), both = twice.bins();
        for (std::size_t t = 0; t < once.size(); ++t) CHECK(both[t] == 2 * once[t]);
        running.reset();
        for (Size j = 0; j < k; ++j) CHECK(running.sparse_sum(j).size() == 0);
    }
}

// Several labellings in turn, with 1 to 7 threads.
template <class Rows>
void check_relabel(const Rows& x, Size k, const std::vector<Labels>& labellings) {
    std::vector<Sums> wanted;
    for (const Labels& labels : labellings) wanted.push_back(one_by_one(x, k, labels));
    for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
        Sums running = sums_for(x, k);
        Labels summed(static_cast<std::size_t>(x.n), -1);
        for (std::size_t t = 0; t < labellings.size(); ++t) {
            running.relabel(x, labellings[t].data(), summed.data(), Threads{n_jobs});
            CHECK(summed == labellings[t]);
            CHECK(equal(running, wanted[t]));
        }
    }
    if constexpr (!is_dense<Rows>) check_sparse(x, k, labellings, wanted);
}

template <class R>
void check_relabel_of(Size n, Size d, Size k, bool weighted, bool one_huge) {
    Random random(std::uint64_t(n + d + k));
    Matrix<R> x(n, d, [&] { return random.unit() < 0.5 ? 0.0 : random.normal(); });
    std::vector<double> weights;
    for (Size i = 0; weighted && i < n; ++i) {
        weights.push_back(random.unit() < 0.1 ? 0.0 : random.unit());
    }
    const double* w = weighted ? weights.data() : nullptr;
    std::vector<Labels> labellings;
    for (int t = 0; t < 3; ++t) labellings.push_back(random_labels(random, n, k));
    if (one_huge) labellings[1].assign(static_cast<std::size_t>(n), std::int32_t(k - 1));
    // Only a few rows change.
    labellings.push_back(labellings.back());
    for (int t = 0; t < 5; ++t) {
        labellings.back()[std::size_t(random.below(n))] = std::int32_t(random.below(k));
    }
    check_relabel(x.rows(w), k, labellings);
    check_relabel(Csr<R, std::int32_t>(x).rows(w), k, labellings);
    check_relabel(Csr<R, std::int64_t>(x).rows(w), k, labellings);
    std::vector<R> fortran(x.values.size());
    for (Size i = 0; i < n; ++i) {
        for (Size f = 0; f < d; ++f) fortran[std::size_t(f * n + i)] = x(i, f);
    }
    check_relabel(DenseRows<R>{fortran.data(), n, d, 1, n, w}, k, labellings);
}

// Is `mean` the double or float nearest to sum / weight? Both are in the same unit.
template <class R>
bool is_nearest(R mean, Int128 sum, Int128 weight) {
    constexpr int places = 60;  // enough for the neighbours of a double above 2^-7
    const R below = std::nextafter(mean, -std::numeric_limits<R>::infinity());
    const R above = std::nextafter(mean, std::numeric_limits<R>::infinity());
    const auto error = [&](R value) {
        return magnitude(sum * (Int128(1) << places) - weight * fixed_point(double(value), places));
    };
    return error(mean) <= error(below) && error(mean) <= error(above);
}

template <class R>
void check_means(bool weighted, bool wide) {
    Random random(77);
    constexpr Size n = 1000, d = 5, k = 7;
    constexpr int places = 54;
    // Multiples of 2^-52 of both signs, with means well away from 0.
    Matrix<R> x(n, d, [&] { return (random.below(4) ? 1 : -1) * random.uniform(1, 2); });
    std::vector<double> weights(std::size_t(n), 1.0);
    for (double& w : weights) w = weighted ? random.uniform(1, 2) : 1.0;
    const DenseRows<R> rows = x.rows(weighted ? weights.data() : nullptr);
    Labels labels = random_labels(random, n, k);
    // One distant row, in its own cluster, makes all sums need more words.
    if (wide) {
        for (std::int32_t& label : labels) label = std::max(label, 1);
        labels[0] = 0;
        for (Size f = 0; f < d; ++f) x(0, f) = R(0x1p60);
    }
    Sums sums = one_by_one(rows, k, labels);
    Matrix<R> centres(k, d);
    sums.average(centres.values.data());
    CHECK(!wide || sums.grid().bins() >= (sizeof(R) == 4 && !weighted ? 2 : 3));
    for (Size j = wide; j < k; ++j) {
        Int128 weight = 0;
        for (Size i = 0; i < n; ++i) {
            if (labels[std::size_t(i)] == j) weight += fixed_point(weights[std::size_t(i)], places);
        }
        CHECK_EQ(sums.weight(j), std::ldexp(double(weight), -places));
        for (Size f = 0; f < d; ++f) {
            Int128 sum = 0;
            for (Size i = 0; i < n; ++i) {
                if (labels[std::size_t(i)] != j) continue;
                sum += fixed_point(weights[std::size_t(i)] * double(x(i, f)), places);
            }
            CHECK(is_nearest(centres(j, f), sum, weight));
        }
    }
}

}  // namespace

TEST(any_number_of_threads_gives_the_same_bits) {
    check_relabel_of<float>(3000, 6, 9, false, false);
    check_relabel_of<double>(3000, 6, 9, false, false);
    check_relabel_of<double>(3000, 6, 9, true, false);
    check_relabel_of<float>(1, 3, 1, false, false);
    check_relabel_of<double>(50, 1, 50, true, false);
}

TEST(one_huge_cluster_is_shared_between_threads) {
    check_relabel_of<float>(9000, 3, 4, false, true);
    check_relabel_of<double>(9000, 3, 2, true, true);
    check_relabel_of<double>(5000, 300, 2, false, true);
}

TEST(many_tiny_clusters) {
    check_relabel_of<double>(2500, 4, 2000, false, false);
    check_relabel_of<float>(2500, 4, 2500, true, false);
}

TEST(null_labels_put_every_row_into_the_first_cluster) {
    Random random(1);
    const Matrix<double> x(4000, 3, [&] { return random.normal(); });
    Sums sums = sums_for(x.rows(), 2);
    Labels summed(4000, -1);
    sums.relabel(x.rows(), nullptr, summed.data(), Threads{3});
    CHECK(equal(sums, one_by_one(x.rows(), 2, Labels(4000, 0))));
    CHECK(summed == Labels(4000, 0));
}

TEST(removing_rows_restores_the_sums_exactly) {
    Random random(2);
    constexpr Size n = 400, d = 5, k = 6;
    // Magnitudes from 1e-12 to 1e12: sums in plain double would drift at once.
    const Matrix<double> x(
        n, d, [&] { return random.normal() * std::pow(10.0, double(random.between(-12, 12))); });
    std::vector<double> weights(std::size_t(n), 0.0);
    for (double& w : weights) w = random.unit();
    const auto rows = x.rows(weights.data());
    const Labels labels = random_labels(random, n, k);
    const Sums wanted = one_by_one(rows, k, labels);
    CHECK(wanted.grid().bins() > 2);
    Sums sums = one_by_one(rows, k, labels);
    Labels now = labels;
    for (int step = 0; step < 20000; ++step) {
        const Size i = random.below(n), to = random.below(k);
        sums.move(rows, i, now[std::size_t(i)], -1.0);
        sums.move(rows, i, to, 1.0);
        now[std::size_t(i)] = std::int32_t(to);
    }
    CHECK(equal(sums, one_by_one(rows, k, now)));
    std::vector<Size> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), Size(0));
    for (std::size_t t = order.size(); t > 1; --t) {
        std::swap(order[t - 1], order[std::size_t(random.below(Size(t)))]);
    }
    for (const Size i : order) {
        sums.move(rows, i, now[std::size_t(i)], -1.0);
        sums.move(rows, i, labels[std::size_t(i)], 1.0);
    }
    CHECK(equal(sums, wanted));
    for (Size i = 0; i < n; ++i) sums.move(rows, i, labels[std::size_t(i)], -1.0);
    for (const double word : sums.bins()) CHECK_EQ(word, 0.0);
    for (const double word : sums.weight_bins()) CHECK_EQ(word, 0.0);
    CHECK(sums.members() == std::vector<Size>(std::size_t(k), 0));
}

TEST(plain_doubles_would_drift) {
    // Otherwise the test above would prove nothing.
    Random random(3);
    double sum = 0;
    std::vector<double> values;
    for (int t = 0; t < 100; ++t) values.push_back(random.normal() * std::pow(10.0, t % 20));
    for (const double value : values) sum += value;
    for (const double value : values) sum -= value;
    CHECK(sum != 0);
}

TEST(reset_clears_all_sums) {
    Random random(4);
    const Matrix<double> x(100, 3, [&] { return random.normal(); });
    const Labels labels = random_labels(random, 100, 4);
    Sums sums = one_by_one(x.rows(), 4, labels);
    sums.reset();
    CHECK(equal(sums, sums_for(x.rows(), 4)));
}

TEST(blocks_add_up_to_the_whole) {
    Random random(5);
    const Matrix<double> x(3000, 4, [&] { return random.normal(); });
    std::vector<double> weights(3000);
    for (double& w : weights) w = random.unit();
    const Labels labels = random_labels(random, 3000, 5);
    const auto rows = x.rows(weights.data());
    const Sums whole = one_by_one(rows, 5, labels);
    Sums all = sums_for(rows, 5);
    for (Size begin = 2000; begin >= 0; begin -= 1000) {
        const DenseRows<double> block{x.row(begin), 1000, 4, 4, 1, weights.data() + begin};
        Sums part(5, 4, whole.grid(), weight_grid_for(weights.data(), 3000));
        Labels summed(1000, -1);
        part.relabel(block, labels.data() + begin, summed.data(), Threads{2});
        all.add(part);
    }
    CHECK(equal(all, whole));
}

TEST(means_are_correctly_rounded) {
    for (const bool weighted : {false, true}) {
        for (const bool wide : {false, true}) {
            check_means<float>(weighted, wide);
            check_means<double>(weighted, wide);
        }
    }
}

TEST(the_mean_of_equal_rows_is_the_row) {
    Random random(6);
    for (const bool weighted : {false, true}) {
        for (const Size n : {1, 3, 7, 1000}) {
            Matrix<float> single(n, 40);
            Matrix<double> twice(n, 40);
            for (Size f = 0; f < 40; ++f) {
                const double value =
                    random.normal() * std::pow(10.0, double(random.between(-9, 9)));
                for (Size i = 0; i < n; ++i) {
                    single(i, f) = float(value);
                    twice(i, f) = value;
                }
            }
            // Powers of two, so that w x is not rounded.
            std::vector<double> weights(std::size_t(n), 1.0);
            for (double& w : weights) w = std::ldexp(1.0, int(random.between(-3, 3)));
            const double* w = weighted ? weights.data() : nullptr;
            std::vector<float> mean(40);
            std::vector<double> mean2(40);
            const Labels zeros(static_cast<std::size_t>(n), 0);
            one_by_one(single.rows(w), 1, zeros).average(mean.data());
            one_by_one(twice.rows(w), 1, zeros).average(mean2.data());
            CHECK(std::equal(mean.begin(), mean.end(), single.row(0)));
            CHECK(std::equal(mean2.begin(), mean2.end(), twice.row(0)));
        }
    }
}

TEST(empty_clusters_get_the_mean_of_the_heaviest) {
    Matrix<double> x(6, 1);
    for (Size i = 0; i < 6; ++i) x(i, 0) = double(1 << i);
    std::vector<double> centres{-1, -2, -3, -4};
    // Clusters 1 and 3 have two rows each: the lower index counts as heaviest.
    Sums sums = one_by_one(x.rows(), 4, {1, 1, 3, 3, 0, 1});
    sums.move(x.rows(), 5, 1, -1.0);
    sums.average(centres.data());
    CHECK(centres == (std::vector<double>{16, 1.5, 1.5, 6}));
    CHECK(sums.members() == (std::vector<Size>{1, 2, 0, 2}));
    // Weight decides, not the number of rows; rows without weight do not count.
    const std::vector<double> weights{1, 1, 1, 9, 0, 0};
    sums = one_by_one(x.rows(weights.data()), 4, {1, 1, 1, 3, 0, 0});
    sums.average(centres.data());
    CHECK_EQ(centres[0], 8.0);
    CHECK_EQ(centres[2], 8.0);
    CHECK_EQ(centres[3], 8.0);
    CHECK(sums.members() == (std::vector<Size>{0, 3, 0, 1}));
    CHECK_EQ(sums.weight(3), 9.0);
    CHECK_EQ(sums.weight(0), 0.0);
}

TEST(magnitude_changes_no_bit_of_the_mean) {
    Random random(8);
    constexpr Size n = 500, d = 3, k = 4;
    const Matrix<double> near_one(n, d, [&] { return random.normal(); });
    const Labels labels = random_labels(random, n, k);
    std::vector<double> wanted(std::size_t(k * d));
    one_by_one(near_one.rows(), k, labels).average(wanted.data());
    for (const int exponent : {-1021, -1000, -400, 400, 900}) {
        Matrix<double> x = near_one;
        for (double& v : x.values) v = std::ldexp(v, -exponent);
        Sums sums = sums_for(x.rows(), k);
        Labels summed(std::size_t(n), -1);
        sums.relabel(x.rows(), labels.data(), summed.data(), Threads{3});
        std::vector<double> centres(std::size_t(k * d));
        sums.average(centres.data());
        for (double& c : centres) c = std::ldexp(c, exponent);
        CHECK(same_bits(centres, wanted));
    }
}

TEST(explained_scatter) {
    Random random(9);
    constexpr Size n = 300, d = 4, k = 5;
    const Matrix<double> x(n, d, [&] { return 3 + random.normal(); });
    std::vector<double> weights(std::size_t(n), 0.0);
    for (double& w : weights) w = random.unit();
    const Labels labels = random_labels(random, n, k);
    Sums sums = one_by_one(x.rows(weights.data()), k, labels);
    const Matrix<double> centres(k, d, [&] { return 3 + random.normal(); });
    const std::vector<double> origin{3.1, 2.9, 3.0, 2.5};
    long double about_origin = 0, about_centres = 0;
    for (Size i = 0; i < n; ++i) {
        for (Size f = 0; f < d; ++f) {
            const long double value = x(i, f), weight = weights[std::size_t(i)];
            const long double a = value - origin[std::size_t(f)];
            const long double b = value - centres(labels[std::size_t(i)], f);
            about_origin += weight * a * a;
            about_centres += weight * b * b;
        }
    }
    double got = 0;
    for (Size j = 0; j < k; ++j) got += sums.explained(j, centres.row(j), origin.data(), 0);
    CHECK(std::fabs(got - double(about_origin - about_centres)) < 1e-11 * double(about_origin));
}

TEST(few_features_join_and_leave_a_long_sum) {
    SparseSum all(2), few(2);
    std::vector<std::uint32_t> features{3};
    std::vector<double> high{5}, low{6};
    for (Size f = 10; f < 210; ++f) {
        const double bins[] = {double(f), 0.5};
        all.push(f, bins, 1);
        if (f == 50) continue;
        features.push_back(std::uint32_t(f));
        high.push_back(f == 100 ? 107.0 : double(f));
        low.push_back(f == 100 ? 8.5 : 0.5);
    }
    features.push_back(500);
    high.push_back(0);
    low.push_back(9);
    // New before all others, cancelled, present already, and new after all others.
    const double bins[][2] = {{5, 6}, {-50, -0.5}, {7, 8}, {0, 9}};
    const Size places[] = {3, 50, 100, 500};
    for (int t = 0; t < 4; ++t) few.push(places[t], bins[t], 1);
    all.add(few);
    CHECK(all.features() == features);
    for (Size t = 0; t < all.size(); ++t) {
        CHECK_EQ(all.plane(0)[t], high[std::size_t(t)]);
        CHECK_EQ(all.plane(1)[t], low[std::size_t(t)]);
    }
}

TEST(lists_and_accumulators_add_the_same_sums) {
    Random random(72);
    constexpr Size d = 700;
    for (int trial = 0; trial < 300; ++trial) {
        const int bins = 1 + trial % 3;
        // Dense, d x words. Small integers, so that many sums cancel in some or all words.
        const auto draw = [&](double share) {
            std::vector<double> out(std::size_t(d * bins));
            for (Size f = 0; f < d; ++f)
                for (int w = 0; w < bins && random.unit() < share; ++w)
                    out[std::size_t(f * bins + w)] = double(random.below(5)) - 2;
            return out;
        };
        const auto listed = [&](const std::vector<double>& dense) {
            SparseSum out(bins);
            for (Size f = 0; f < d; ++f) out.push(f, dense.data() + f * bins, 1);
            return out;
        };
        std::vector<double> sum = draw(trial % 7 ? random.unit() : 0.0);
        std::vector<double> more = draw(trial % 2 ? 0.02 : random.unit());
        for (double& v : more)
            if (random.unit() < 0.5) v = 0 - sum[std::size_t(&v - more.data())];
        if (trial % 2)  // few
            for (Size f = 0; f < d; ++f)
                if (f % 40) std::fill_n(more.data() + f * bins, bins, 0.0);
        SparseSum by_list = listed(sum), by_accumulator = listed(sum);
        by_list.add(listed(more));
        // The second size is too large for the cached path.
        SparseAccumulator accumulator(trial % 5 ? d : Size(200000), bins);
        CHECK_EQ(accumulator.fits_caches(), trial % 5 != 0);
        Size most = 0;
        for (int again = 0; again < 2; ++again) {  // the accumulator is clear after use
            most = 0;
            for (Size f = 0; f < d; ++f) {
                if (std::all_of(more.data() + f * bins, more.data() + (f + 1) * bins,
                                [](double v) { return v == 0; }))
                    continue;
                ++most;
                for (int w = 0; w < bins; ++w)
                    accumulator.at(f)[w] += more[std::size_t(f * bins + w)];
            }
            if (again == 0) {
                SparseSum taken(bins);
                taken.take(accumulator);
                CHECK(taken.features() == listed(more).features());
            }
        }
        by_accumulator.add(accumulator, most);
        for (std::size_t t = 0; t < sum.size(); ++t) sum[t] += more[t];
        const SparseSum wanted = listed(sum);
        for (const SparseSum* got : {&by_list, &by_accumulator}) {
            CHECK(got->features() == wanted.features());
            for (int w = 0; w < bins; ++w)
                CHECK(same_bits(
                    std::vector<double>(got->plane(w), got->plane(w) + got->size()),
                    std::vector<double>(wanted.plane(w), wanted.plane(w) + wanted.size())));
        }
    }
}

TEST(labels_of_missing_clusters_are_refused) {
    const Size n = 40, k = 3;
    Random random(71);
    const Matrix<double> x(n, 2, [&] { return random.normal(); });
    for (const std::int32_t wrong : {-2, -1, 3, 1 << 30}) {
        Sums sums = sums_for(x.rows(), k);
        Labels labels(n, 1), summed(n, -1), from(n, 1);
        labels[33] = wrong;
        CHECK_THROWS(sums.relabel(x.rows(), labels.data(), summed.data(), Threads{}),
                     std::invalid_argument);
        CHECK(summed == Labels(n, -1));
        CHECK(equal(sums, sums_for(x.rows(), k)));
        if (wrong == -1) continue;
        from[33] = wrong;
        labels[33] = 1;
        CHECK_THROWS(sums.relabel(x.rows(), labels.data(), from.data(), Threads{}),
                     std::invalid_argument);
    }
}
