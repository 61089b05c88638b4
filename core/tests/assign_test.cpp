// Every registered algorithm must give plain Lloyd's labels, bit for bit, while the centres move.
// The tests read the registry: a new algorithm needs no line here.
#include <algorithm>
#include <limits>
#include <string_view>

#include "check.hpp"
#include "exactmeans/assign/registry.hpp"
#include "exactmeans/update/cluster_sums.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

template <class R>
struct Case {
    std::string name;
    Matrix<R> x;
    Matrix<R> centres;
    Frame<R> frame = {};
    std::vector<double> norms2 = {};  // of the first centres, if the caller computes them
    Size norm_terms = 1;
};

// A sequence of centres: the first ones, then Lloyd's updates with a few random perturbations.
template <class R>
std::vector<Matrix<R>> plan_moves(const AnyRows& rows, const Case<R>& c, Size steps) {
    Random random(std::uint64_t(c.x.n + c.x.d));
    std::vector<Matrix<R>> plan{c.centres};
    const Size n = c.x.n, d = c.x.d, k = c.centres.n;
    for (Size step = 1; step < steps; ++step) {
        Labels labels(static_cast<std::size_t>(n), -1);
        SharedCentres<R> now(Centres<R>(plan.back().values.data(), k, d, c.frame, Threads{}));
        make_assigner<R>("lloyd", n, k)->assign(rows, now, labels.data(), Threads{});
        Matrix<R> next = plan.back();
        std::vector<double> sum(static_cast<std::size_t>(k * d)),
            count(static_cast<std::size_t>(k));
        for (Size i = 0; i < n; ++i) {
            const Size j = labels[std::size_t(i)];
            count[std::size_t(j)] += 1;
            for (Size f = 0; f < d; ++f) sum[std::size_t(j * d + f)] += double(c.x(i, f));
        }
        for (Size j = 0; j < k; ++j) {
            const double members = count[std::size_t(j)];
            for (Size f = 0; f < d && members > 0; ++f) {
                next(j, f) = R(sum[std::size_t(j * d + f)] / members);
            }
        }
        // Puts some centres on a row or next to another centre: ties and long movements.
        if (step % 3 == 2) {
            const Size j = random.below(k), i = random.below(n);
            for (Size f = 0; f < d; ++f) next(j, f) = c.x(i, f);
        }
        if (step % 4 == 3) {
            const Size j = random.below(k), from = random.below(k);
            for (Size f = 0; f < d; ++f) next(j, f) = next(from, f);
            next(j, random.below(d)) *= R(1 + std::numeric_limits<R>::epsilon());
        }
        plan.push_back(next);
    }
    // The same centres again: nothing moves.
    plan.push_back(plan.back());
    return plan;
}

struct Trace {
    std::vector<Labels> labels;
    std::vector<AssignStats> stats;
};

template <class R>
Trace run_passes(const std::string& algorithm, const AnyRows& rows, const Case<R>& c,
                 const std::vector<Matrix<R>>& plan, int n_jobs) {
    const Size n = c.x.n, k = c.centres.n;
    const Threads threads{n_jobs};
    SharedCentres<R> shared(Centres<R>(plan[0].values.data(), k, c.x.d, c.frame, threads));
    Centres<R>& centroids = shared.centres;
    if (!c.norms2.empty()) centroids.set_norms(c.norms2.data(), c.norm_terms);
    const auto assigner = make_assigner<R>(algorithm, n, k);
    Labels labels(static_cast<std::size_t>(n), -1);
    Trace trace;
    for (std::size_t step = 0; step < plan.size(); ++step) {
        if (step) assigner->moved(centroids.move(plan[step].values.data(), threads));
        const bool certain = assigner->labels_certain(shared, labels.data(), threads);
        trace.stats.push_back(assigner->assign(rows, shared, labels.data(), threads));
        if (certain) CHECK(step && trace.stats.back().skipped == n);
        trace.labels.push_back(labels);
    }
    return trace;
}

Size count_changes(const std::vector<Labels>& labels, std::size_t step) {
    Size changed = 0;
    for (std::size_t i = 0; i < labels[step].size(); ++i) {
        changed += step == 0 || labels[step][i] != labels[step - 1][i];
    }
    return changed;
}

void check_trace(const std::string& name, const Trace& got, const Trace& wanted, Size most) {
    for (std::size_t step = 0; step < wanted.labels.size(); ++step) {
        Size wrong = 0;
        for (std::size_t i = 0; i < wanted.labels[step].size(); ++i) {
            wrong += got.labels[step][i] != wanted.labels[step][i];
        }
        if (wrong) {
            check::fail(name.c_str(), int(step), std::to_string(wrong) + " labels differ");
        }
        CHECK_EQ(got.stats[step].changed, count_changes(wanted.labels, step));
        CHECK(got.stats[step].distances <= most);
    }
}

Size total_distances(const Trace& trace) {
    Size sum = 0;
    for (const AssignStats& pass : trace.stats) sum += pass.distances;
    return sum;
}

template <class R>
void check_rows(const std::string& kind, const AnyRows& rows, const Case<R>& c, bool dense) {
    const Size n = c.x.n, k = c.centres.n;
    const auto plan = plan_moves(rows, c, 9);
    const Trace wanted = run_passes<R>("lloyd", rows, c, plan, 1);
    for (const AssignStats& pass : wanted.stats) CHECK_EQ(pass.distances, n * k);
    for (const Registered<R>& entry : registry<R>) {
        if (!(dense ? entry.traits.dense : entry.traits.csr)) continue;
        Size distances = -1;
        for (int n_jobs = 1; n_jobs <= 7; ++n_jobs) {
            const std::string name = c.name + " " + kind + " " + entry.traits.name + " " +
                                     std::to_string(n_jobs) + " threads, step";
            const Trace got = run_passes<R>(entry.traits.name, rows, c, plan, n_jobs);
            // Beyond all pairs, at most one own distance per row and those between centres.
            check_trace(name, got, wanted, n * k + n + k * k);
            if (distances < 0) distances = total_distances(got);
            CHECK_EQ(total_distances(got), distances);
        }
    }
}

template <class R>
void check_case(const Case<R>& c) {
    check_rows<R>("dense", c.x.rows(), c, true);
    std::vector<R> fortran(c.x.values.size());
    for (Size i = 0; i < c.x.n; ++i) {
        for (Size f = 0; f < c.x.d; ++f) fortran[std::size_t(f * c.x.n + i)] = c.x(i, f);
    }
    check_rows<R>("fortran", DenseRows<R>{fortran.data(), c.x.n, c.x.d, 1, c.x.n, nullptr}, c,
                  true);
    if (!c.frame.shift.empty()) return;
    const Csr<R, std::int32_t> narrow(c.x);
    check_rows<R>("csr32", narrow.rows(), c, false);
    const Csr<R, std::int64_t> wide(c.x);
    check_rows<R>("csr64", wide.rows(), c, false);
    // Features that a row does not store add nothing, so dense rows have the same scores. The
    // quantized filter does not run on them.
    const auto plan = plan_moves<R>(c.x.rows(), c, 9);
    const Trace wanted = run_passes<R>("lloyd", c.x.rows(), c, plan, 1);
    check_trace(c.name + " csr and dense, step", run_passes<R>("lloyd", narrow.rows(), c, plan, 2),
                wanted, c.x.n * c.centres.n);
}

template <class R>
Matrix<R> first_rows(const Matrix<R>& x, Size k) {
    Matrix<R> centres(k, x.d);
    for (Size j = 0; j < k; ++j) {
        for (Size f = 0; f < x.d; ++f) centres(j, f) = x(j * x.n / k % x.n, f);
    }
    return centres;
}

template <class R>
Matrix<R> blobs(Random& random, Size n, Size d, Size count, double spread) {
    const Matrix<R> middles(count, d, [&] { return random.normal(); });
    Matrix<R> x(n, d);
    for (Size i = 0; i < n; ++i) {
        const Size b = random.below(count);
        for (Size f = 0; f < d; ++f) x(i, f) = R(double(middles(b, f)) + spread * random.normal());
    }
    return x;
}

template <class R>
void check_random() {
    Random random(1);
    for (const Size d : {1, 2, 9, 40}) {
        for (const Size k : {1, 2, 7, 20}) {
            const Matrix<R> x = blobs<R>(random, 331, d, 12, 0.2);
            check_case<R>({"blobs", x, first_rows(x, k)});
        }
    }
}

template <class R>
void check_degenerate() {
    Random random(2);
    const Matrix<R> equal(100, 3, [] { return 0.1; });
    check_case<R>({"equal rows", equal, first_rows(equal, 5)});
    const Matrix<R> zeros(60, 2);
    check_case<R>({"zeros", zeros, Matrix<R>(3, 2, [&] { return random.normal(); })});
    check_case<R>({"zeros and zero centres", zeros, Matrix<R>(3, 2)});
    const Matrix<R> lattice(400, 2, [&] { return double(random.between(-3, 3)); });
    check_case<R>({"lattice", lattice, first_rows(lattice, 16)});
    check_case<R>({"lattice, random centres", lattice,
                   Matrix<R>(20, 2, [&] { return double(random.between(-3, 3)); })});
    Matrix<R> sparse(300, 30, [&] { return random.unit() < 0.1 ? random.unit() : 0.0; });
    for (Size f = 0; f < 30; ++f) sparse(7, f) = sparse(8, f) = 0;
    check_case<R>({"sparse with empty rows", sparse, first_rows(sparse, 10)});
    const Matrix<R> few = blobs<R>(random, 5, 3, 2, 0.1);
    check_case<R>(
        {"more centres than rows", few, Matrix<R>(9, 3, [&] { return random.normal(); })});
    const Matrix<R> one = blobs<R>(random, 1, 3, 1, 0.1);
    check_case<R>({"one row", one, Matrix<R>(2, 3, [&] { return random.normal(); })});
}

// Enough centres for the quantized filter, and rows that it must not decide: near ties, and values
// that float32 or 16-bit codes cannot distinguish.
template <class R>
void check_quantized_filter() {
    Random random(5);
    const auto sparse = [&](double scale) {
        return Matrix<R>(700, 60,
                         [&] { return random.unit() < 0.15 ? scale * random.normal() : 0; });
    };
    const Matrix<R> plain = sparse(1);
    check_case<R>({"many centres", plain, first_rows(plain, 130)});
    const Matrix<R> small = sparse(0x1p-60), large = sparse(0x1p50);
    check_case<R>({"many small centres", small, first_rows(small, 40)});
    check_case<R>({"many large centres", large, first_rows(large, 40)});
    // Pairs of centres that differ in the last bit of one value, or not at all.
    Matrix<R> pairs = first_rows(plain, 64);
    for (Size j = 1; j < 64; j += 2)
        for (Size f = 0; f < 60; ++f)
            pairs(j, f) = R(double(pairs(j - 1, f)) *
                            (1 + (j % 4 == 1 ? double(std::numeric_limits<R>::epsilon()) : 0.0)));
    check_case<R>({"pairs of centres", plain, pairs});
    // One huge value makes the scale of its centre coarse; the norms of centres decide rows of one
    // tiny value.
    Matrix<R> tiny = plain, centres = first_rows(plain, 40);
    for (Size i = 0; i < tiny.n; i += 3)
        for (Size f = 0; f < 60; ++f) tiny(i, f) = f == i % 60 ? R(0x1p-110) : R(0);
    centres(3, 5) = R(1e6);
    check_case<R>({"outlier centre", tiny, centres});
    // Some rows half-way between two centres, up to rounding. Without its error bound the filter
    // would choose the wrong centre. With more such rows the filter would not pay and not run.
    const Matrix<R> apart = first_rows(plain, 40);
    Matrix<R> ties = plain;
    for (Size i = 0; i < ties.n; i += 25) {
        const Size a = random.below(40), b = random.below(40);
        for (Size f = 0; f < 60; ++f)
            ties(i, f) = R((double(apart(a, f)) + double(apart(b, f))) / 2);
    }
    check_case<R>({"half-way", ties, apart});
}

// Rows near ties, far from the origin: without slack, algorithms give wrong labels here.
template <class R>
void check_offset(double offset) {
    Random random(3);
    Matrix<R> x(1500, 4, [&] { return offset + double(random.between(0, 15)) / 16; });
    check_case<R>({"offset", x, first_rows(x, 24)});
    const std::vector<R> shift(4, R(offset + 0.47));
    check_case<R>({"offset, shifted", x, first_rows(x, 24), {0, shift}});
    const Matrix<R> lone(1500, 1, [&] { return offset + random.unit(); });
    check_case<R>({"offset line", lone, first_rows(lone, 40)});
}

template <class R>
void check_magnitudes(std::initializer_list<int> exponents) {
    Random random(4);
    for (const int exponent : exponents) {
        Matrix<R> x = blobs<R>(random, 300, 3, 8, 0.2);
        for (R& v : x.values) v = R(std::ldexp(double(v), -exponent));
        check_case<R>({"scaled", x, first_rows(x, 9), {exponent, {}}});
        // Without the scale that the data need: bounds may be useless, labels must be right.
        if (std::abs(exponent) < 60) check_case<R>({"unscaled", x, first_rows(x, 9)});
    }
}

}  // namespace

TEST(random_float) { check_random<float>(); }
TEST(random_double) { check_random<double>(); }
TEST(degenerate_float) { check_degenerate<float>(); }
TEST(degenerate_double) { check_degenerate<double>(); }
TEST(quantized_filter_float) { check_quantized_filter<float>(); }
TEST(quantized_filter_double) { check_quantized_filter<double>(); }
TEST(offset_float) { check_offset<float>(4000); }
TEST(offset_double) { check_offset<double>(1e9); }
TEST(magnitudes_float) { check_magnitudes<float>({-100, -50, 50, 74, 100}); }
TEST(magnitudes_double) { check_magnitudes<double>({-1000, -400, 400, 1000}); }

TEST(long_float_rows) {
    Random random(5);
    const Matrix<float> x = blobs<float>(random, 60, 4500, 6, 0.5);
    check_case<float>({"long rows", x, first_rows(x, 6)});
}

TEST(norms_from_the_caller) {
    Random random(6);
    const Matrix<double> x(400, 20, [&] { return random.unit() < 0.2 ? random.unit() : 0.0; });
    Case<double> c{"norms", x, first_rows(x, 12)};
    for (Size j = 0; j < 12; ++j) {
        // A few roundings away from the truth, as another library's sums are.
        double norm2 = 0;
        for (Size f = 19; f >= 0; --f) norm2 += c.centres(j, f) * c.centres(j, f);
        c.norms2.push_back(norm2 * (1 + 0x1p-50));
    }
    c.norm_terms = 32;
    check_case<double>(c);
}

TEST(bounds_save_most_distances) {
    Random random(7);
    const Matrix<float> x = blobs<float>(random, 3000, 8, 20, 0.05);
    const Case<float> c{"easy", x, first_rows(x, 20)};
    auto plan = plan_moves<float>(x.rows(), c, 3);
    // Converged centres with small random movements.
    for (int step = 0; step < 10; ++step) {
        plan.push_back(plan.back());
        for (float& v : plan.back().values) v *= float(1 + 1e-4 * random.normal());
    }
    const Size all = total_distances(run_passes<float>("lloyd", x.rows(), c, plan, 2));
    for (const Registered<float>& entry : registry<float>) {
        if (std::string(entry.traits.name) == "lloyd" || !entry.traits.dense) continue;
        const Trace trace = run_passes<float>(entry.traits.name, x.rows(), c, plan, 2);
        CHECK(total_distances(trace) < all / 2);
    }
}

TEST(lloyd_gives_the_nearest_centre) {
    // In exact arithmetic: small integers.
    Random random(8);
    const Matrix<double> x(500, 3, [&] { return double(random.between(-9, 9)); });
    const Matrix<double> centres(11, 3, [&] { return double(random.between(-9, 9)); });
    SharedCentres<double> shared(Centres<double>(centres.values.data(), 11, 3, {}, Threads{}));
    Labels labels(500, -1);
    const AssignStats stats = make_assigner<double>("lloyd", 500, 11)
                                  ->assign(x.rows(), shared, labels.data(), Threads{2});
    CHECK_EQ(stats.changed, 500);
    CHECK_EQ(stats.distances, 5500);
    for (Size i = 0; i < 500; ++i) {
        std::int32_t best = 0;
        double low = std::numeric_limits<double>::infinity();
        for (Size j = 0; j < 11; ++j) {
            double d2 = 0;
            for (Size f = 0; f < 3; ++f)
                d2 += (x(i, f) - centres(j, f)) * (x(i, f) - centres(j, f));
            if (d2 < low) {
                low = d2;
                best = std::int32_t(j);
            }
        }
        CHECK_EQ(labels[std::size_t(i)], best);
    }
}

namespace {

// Moves some centres out of range, or too far beyond the rows for float32 bounds, and back.
template <class R>
void check_far(const std::string& name, double far, bool out_of_range, Size d, Frame<R> frame = {},
               double size = 1) {
    Random random(9);
    constexpr Size n = 400, k = 40;
    Matrix<R> x = blobs<R>(random, n, d, 8, 0.3);
    for (R& v : x.values) v = random.coin() ? R(double(v) * size) : R(0);
    const Case<R> c{name, x, first_rows(x, k), frame};
    // Which centres are far at each step.
    const std::vector<std::vector<Size>> away{{1},        {1},    {}, {}, {},
                                              {0, 7, 39}, {0, 7}, {}, {}, {3}};
    std::vector<Matrix<R>> plan;
    Matrix<R> near = c.centres;
    for (const auto& which : away) {
        for (R& v : near.values) v = R(double(v) * (1 + 0.02 * random.normal()));
        plan.push_back(near);
        for (const Size j : which)
            for (Size f = 0; f < d; ++f)
                if (f == 0 || random.coin()) plan.back()(j, f) = R(random.coin() ? far : -far);
    }
    plan.push_back(near);
    plan.emplace_back(k, d, [&] { return random.coin() ? far : -far; });
    plan.push_back(near);
    const Csr<R, std::int32_t> csr(x);
    for (const bool dense : {true, false}) {
        if (!dense && !frame.shift.empty()) continue;  // CSR rows are never shifted
        const AnyRows rows = dense ? AnyRows(x.rows()) : AnyRows(csr.rows());
        const Trace wanted = run_passes<R>("lloyd", rows, c, plan, 2);
        // No row has the label of a centre out of range while another centre is in range.
        for (std::size_t step = 0; out_of_range && step < away.size(); ++step)
            for (const std::int32_t label : wanted.labels[step])
                CHECK(std::find(away[step].begin(), away[step].end(), label) == away[step].end());
        if (out_of_range) CHECK(wanted.labels[plan.size() - 2] == Labels(std::size_t(n), 0));
        for (const Registered<R>& entry : registry<R>) {
            if (!(dense ? entry.traits.dense : entry.traits.csr)) continue;
            for (const int n_jobs : {1, 3}) {
                const Trace got = run_passes<R>(entry.traits.name, rows, c, plan, n_jobs);
                check_trace(name + (dense ? " dense " : " csr ") + entry.traits.name + ", step",
                            got, wanted, n * k + n + k * k);
                // Bounds start again after such a pass and prune again.
                if (dense && out_of_range && entry.traits.name == std::string_view("hamerly"))
                    CHECK(got.stats[4].distances < n * k);
            }
        }
    }
}

}  // namespace

TEST(centres_out_of_range_float) {
    for (const Size d : {2, 30}) {
        check_far<float>("1e20", 1e20, true, d);
        check_far<float>("3e38", 3e38, true, d);
        check_far<float>("tiny rows", 1, true, d, {100, {}}, 1e-38);
        check_far<float>("shifted", 1e30, true, d, {0, std::vector<float>(std::size_t(d), 0.25f)});
    }
}
TEST(centres_out_of_range_double) {
    for (const Size d : {2, 30}) {
        check_far<double>("1e160", 1e160, true, d);
        check_far<double>("1e308", 1e308, true, d);
        check_far<double>("tiny rows", 1e100, true, d, {376, {}}, 1e-200);
        // Packed values overflow although norms do not.
        check_far<double>("tiniest rows", 0x1p-370, true, d, {700, {}}, 0x1p-980);
    }
}
TEST(centres_far_beyond_the_rows) {
    for (const Size d : {2, 30}) {
        check_far<double>("1e40", 1e40, false, d);
        check_far<double>("1e13", 1e13, false, d);
        check_far<double>("1e9", 1e9, false, d);
        check_far<float>("1e13", 1e13, false, d);
        check_far<float>("1e9", 1e9, false, d);
        check_far<float>("small rows", 1, false, d, {}, 1e-12);
    }
}

TEST(kdtree_refuses_more_rows_than_it_can_number) {
    CHECK_THROWS(make_assigner<float>("kdtree", Size(1) << 31, 2), std::invalid_argument);
}

TEST(registry_finds_algorithms_by_name) {
    CHECK_EQ(std::string(registry<float>[0].traits.name), "lloyd");
    CHECK_EQ(registry<float>.size(), registry<double>.size());
    for (std::size_t t = 0; t < registry<float>.size(); ++t) {
        CHECK_EQ(std::string(registry<float>[t].traits.name), registry<double>[t].traits.name);
    }
    CHECK_THROWS(make_assigner<float>("lioyd", 1, 1), std::invalid_argument);
    const Matrix<double> x(2, 1);
    const Matrix<float> centres(1, 1);
    SharedCentres<float> shared(Centres<float>(centres.values.data(), 1, 1, {}, Threads{}));
    Labels labels(2, -1);
    CHECK_THROWS(make_assigner<float>("lloyd", 2, 1)
                     ->assign(AnyRows(x.rows()), shared, labels.data(), Threads{}),
                 std::invalid_argument);
}
