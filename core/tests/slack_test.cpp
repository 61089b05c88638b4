// Random and adversarial rows: no bound may be wrong. Each claim is also checked without its slack,
// to show that the sample can detect errors.
#include "exactmeans/numerics/slack.hpp"

#include <limits>

#include "check.hpp"
#include "exactmeans/centres/centres.hpp"
#include "exactmeans/numerics/compensated.hpp"
#include "exactmeans/numerics/unit_vectors.hpp"
#include "exactmeans/scan/scan.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

// long double is the reference; its error is far below the slack of a double.
constexpr long double truth_error = 0x1p-58L;

template <class R>
struct Pair {
    double score = 0;
    long double distance = 0;
};

// One row against its centres: computed scores and true distances, on the scale of the frame.
template <class R>
struct CandidateEvaluation {
    double norm2 = 0;
    std::vector<Pair<R>> pairs;

    CandidateEvaluation(const Matrix<R>& x, const Matrix<R>& centres, const Frame<R>& frame) {
        // One centre at a time, so that the kernel returns every score.
        for (Size j = 0; j < centres.n; ++j) {
            SharedCentres<R> shared(Centres<R>(centres.row(j), 1, centres.d, frame, Threads{}));
            const Centres<R>& one = shared.centres;
            std::int32_t label = 0;
            const DenseRows<R> rows = x.rows();
            RowSlacks<R> slacks;
            Work<DenseRows<R>> work(rows, shared, &label, slacks);
            work.pack_centres(Threads{});
            Scan<DenseRows<R>> scan;
            scan.nearest(work, 0, nullptr, 1, false);
            long double distance2 = 0;
            for (Size f = 0; f < x.d; ++f) {
                const long double step =
                    (static_cast<long double>(shifted(x(0, f), frame, f)) - one.derived(0, f)) *
                    static_cast<long double>(frame.scale());
                distance2 += step * step;
            }
            pairs.push_back({double(scan.score[0]), std::sqrt(distance2)});
        }
        Compensated sum;
        for (Size f = 0; f < x.d; ++f) {
            const double value = double(shifted(x(0, f), frame, f)) * frame.scale();
            sum.add_product(value, value);
        }
        norm2 = sum.value();
    }

    static R shifted(R value, const Frame<R>& frame, Size f) {
        return frame.shift.empty() ? value : R(value - frame.shift[std::size_t(f)]);
    }
};

struct Counts {
    Size trials = 0;
    Size wrong = 0;      // certified bounds or orders that are wrong
    Size raw_wrong = 0;  // the same without slack
    Size apart = 0;      // orders that the slack certifies

    void expect_no_error_but_teeth() const {
        CHECK_EQ(wrong, 0);
        CHECK(raw_wrong > trials / 100);
        CHECK(trials > 0);
    }
};

template <class R>
void count_bounds(const CandidateEvaluation<R>& trial, const Slack& slack, Counts& counts) {
    for (const Pair<R>& pair : trial.pairs) {
        const long double low = pair.distance * (1 - truth_error);
        const long double high = pair.distance * (1 + truth_error);
        ++counts.trials;
        counts.wrong += slack.upper(pair.score, trial.norm2) < low;
        counts.wrong += slack.lower(pair.score, trial.norm2) > high;
        const double raw = std::sqrt(std::max(0.0, trial.norm2 + 2 * pair.score));
        counts.raw_wrong += raw < low || raw > high;
    }
}

template <class R>
void count_orders(const CandidateEvaluation<R>& trial, const Slack& slack, Counts& counts) {
    for (const Pair<R>& near : trial.pairs) {
        for (const Pair<R>& far : trial.pairs) {
            // A tie that long double resolves must not count as an error.
            if (far.distance * (1 - truth_error) <= near.distance * (1 + truth_error)) continue;
            const double lower = double(far.distance) * (1 - 0x1p-52);
            const double upper = double(near.distance) * (1 + 0x1p-52);
            const bool ordered = far.score > near.score;
            const bool apart = slack.apart(lower, upper, trial.norm2);
            ++counts.trials;
            counts.apart += apart;
            counts.wrong += apart && !ordered;
            counts.raw_wrong += !ordered;
            // Bounds from scores, as the algorithms compute them.
            const bool pruned = slack.apart(slack.lower(far.score, trial.norm2),
                                            slack.upper(near.score, trial.norm2), trial.norm2);
            counts.wrong += pruned && !ordered;
        }
    }
}

// Centres at equal distances from the row, up to rounding and a relative gap: the difference to the
// first is mirrored feature by feature.
template <class R>
Matrix<R> nearly_tied(Random& random, const Matrix<R>& x, double spread, double gap) {
    constexpr Size k = 4;
    Matrix<R> centres(k, x.d);
    std::vector<double> step(static_cast<std::size_t>(x.d));
    for (double& s : step) s = spread * random.normal();
    for (Size j = 0; j < k; ++j) {
        const double stretch = 1 + gap * double(j) * random.unit();
        const Size turn = random.below(x.d);
        for (Size f = 0; f < x.d; ++f) {
            const double by = step[std::size_t((f + turn) % x.d)] * stretch;
            centres(j, f) = R(double(x(0, f)) + (random.coin() ? by : -by));
        }
    }
    return centres;
}

template <class R>
void check_sample(double offset, bool shift, int exponent) {
    Random random(std::uint64_t(offset) + shift + sizeof(R));
    const double unit = double(std::numeric_limits<R>::epsilon());
    const double size = std::ldexp(1.0, -exponent);
    Counts bounds, orders;
    for (int repeat = 0; repeat < 6000; ++repeat) {
        const Size d = repeat % 3 ? random.between(1, 8) : random.between(9, 90);
        Frame<R> frame{exponent, {}};
        if (shift) frame.shift.assign(std::size_t(d), R(offset * size));
        const Matrix<R> x(1, d, [&] { return (offset + random.normal()) * size; });
        const double spread = size * std::pow(10.0, -double(random.below(5)));
        const double gap = unit * std::pow(4.0, double(random.below(12)));
        const Matrix<R> centres = nearly_tied(random, x, spread, gap);
        const CandidateEvaluation<R> trial(x, centres, frame);
        const Slack slack = Slack::of<R>(d, d, 1, exponent);
        CHECK(slack.holds());
        count_bounds(trial, slack, bounds);
        count_orders(trial, slack, orders);
    }
    bounds.expect_no_error_but_teeth();
    orders.expect_no_error_but_teeth();
    if (offset == 0) CHECK(orders.apart > orders.trials / 50);
}

// A chain whose roundings all have one sign: the first product is 1, and each later one adds
// slightly more (less) than half a unit in the last place. The distance, from one more feature, is
// as large as the error that the roundings cause.
template <class R>
CandidateEvaluation<R> biased_trial(Size d, double sign) {
    const double ulp = double(std::numeric_limits<R>::epsilon());
    Matrix<R> x(1, d), centre(1, d);
    x(0, 0) = centre(0, 0) = R(1);
    for (Size f = 1; f < d; ++f) {
        const double root = std::sqrt(ulp * (sign > 0 ? 0.501 : 0.499));
        x(0, f) = centre(0, f) = R(root);
    }
    x(0, d - 1) = 0;
    centre(0, d - 1) = R(sign > 0 ? std::sqrt(double(d) * ulp) : 0.0);
    return CandidateEvaluation<R>(x, centre, {});
}

template <class R>
void check_biased(Size d, bool cut) {
    for (const double sign : {1.0, -1.0}) {
        const CandidateEvaluation<R> trial = biased_trial<R>(d, sign);
        Counts whole, part;
        count_bounds(trial, Slack::of<R>(d, d, 1, 0), whole);
        CHECK_EQ(whole.wrong, 0);
        if (cut) continue;
        // A slack for a sixteenth of the terms would fail: the slack must grow with the length of
        // the chain.
        count_bounds(trial, Slack::of<R>(d / 16, d, 1, 0), part);
        CHECK(part.wrong > 0);
    }
}

}  // namespace

TEST(float_rows_about_zero) { check_sample<float>(0, false, 0); }
TEST(double_rows_about_zero) { check_sample<double>(0, false, 0); }
TEST(float_rows_with_an_offset) { check_sample<float>(1000, false, 0); }
TEST(double_rows_with_an_offset) { check_sample<double>(1e6, false, 0); }
TEST(float_rows_with_an_offset_and_a_shift) { check_sample<float>(1000, true, 0); }
TEST(double_rows_with_an_offset_and_a_shift) { check_sample<double>(1000, true, 0); }
TEST(float_rows_of_mixed_magnitude) {
    check_sample<float>(0, false, 70);
    check_sample<float>(3, false, -90);
}
TEST(double_rows_of_mixed_magnitude) {
    check_sample<double>(0, false, 600);
    check_sample<double>(3, true, -900);
}

TEST(roundings_of_one_sign) {
    check_biased<float>(2000, false);
    check_biased<float>(4096, false);
    check_biased<double>(4000, false);
    check_biased<float>(20000, true);
}

TEST(long_float_rows_have_the_slack_of_a_piece) {
    Random random(8);
    Counts bounds;
    for (int repeat = 0; repeat < 20; ++repeat) {
        const Size d = 6000;
        const Matrix<float> x(1, d, [&] { return 1 + random.unit(); });
        const CandidateEvaluation<float> trial(x, nearly_tied(random, x, 0.01, 1e-4), {});
        count_bounds(trial, Slack::of<float>(d, d, 1, 0), bounds);
    }
    bounds.expect_no_error_but_teeth();
    CHECK(Slack::of<float>(6000, 6000, 1, 0).upper(0, 1) <
          Slack::of<float>(1000, 6000, 1, 0).upper(0, 1));
    CHECK(Slack::of<float>(1'000'000, 1'000'000, 1, 0).holds());
    CHECK(!Slack::of<float>(10, 10, 1'000'000, 0).holds());
}

TEST(products_that_underflow) {
    Random random(9);
    Counts bounds;
    for (int repeat = 0; repeat < 5000; ++repeat) {
        // Squares near the smallest float; a fit would scale such data, but single rows may be
        // unlike the rest.
        const double size = std::ldexp(1.0, -int(random.between(60, 80)));
        const Size d = random.between(1, 40);
        const Matrix<float> x(1, d, [&] { return size * random.normal(); });
        const CandidateEvaluation<float> trial(x, nearly_tied(random, x, size, 0.1), {});
        count_bounds(trial, Slack::of<float>(d, d, 1, 0), bounds);
    }
    bounds.expect_no_error_but_teeth();
}

TEST(centres_that_underflow_when_scaled) {
    Random random(10);
    Counts bounds, orders;
    for (int repeat = 0; repeat < 3000; ++repeat) {
        // Rows and centres of ordinary magnitude in data near the largest float: 4^exponent makes
        // them subnormal.
        const Size d = random.between(1, 6);
        const double size = std::ldexp(1.0, int(random.between(40, 100)));
        const Matrix<float> x(1, d, [&] { return size * random.normal(); });
        const Matrix<float> centres(3, d, [&] { return size * random.normal(); });
        const CandidateEvaluation<float> trial(x, centres, {-100, {}});
        const Slack slack = Slack::of<float>(d, d, 1, -100);
        count_bounds(trial, slack, bounds);
        count_orders(trial, slack, orders);
    }
    bounds.expect_no_error_but_teeth();
    CHECK_EQ(orders.wrong, 0);
}

TEST(norms_of_many_roundings_have_more_slack) {
    // Norms from a plain sum, as set_norms may receive them.
    Random random(11);
    Counts bounds;
    for (int repeat = 0; repeat < 3000; ++repeat) {
        const Size d = random.between(2, 60);
        const Matrix<double> x(1, d, [&] { return random.normal(); });
        const Matrix<double> centre = nearly_tied(random, x, 0.001, 0.0);
        CandidateEvaluation<double> trial(x, centre, {});
        trial.pairs.resize(1);
        double norm2 = 0, dot = 0;
        for (Size f = 0; f < d; ++f) {
            norm2 += centre(0, f) * centre(0, f);
            dot = std::fma(x(0, f), -centre(0, f), dot);
        }
        trial.pairs[0].score = dot + 0.5 * norm2;
        count_bounds(trial, Slack::of<double>(d, d, d + 1, 0), bounds);
    }
    bounds.expect_no_error_but_teeth();
}

TEST(bounds_of_impossible_scores_are_harmless) {
    const Slack slack = Slack::of<double>(3, 3, 1, 0);
    const double inf = std::numeric_limits<double>::infinity();
    // A single centre has no second score: it is infinite, and no bound may follow from it.
    CHECK(slack.lower(inf, 1.0) == 0 || slack.lower(inf, 1.0) == inf);
    CHECK_EQ(slack.lower(-1.0, 1.0), 0.0);
    CHECK(slack.upper(-1.0, 1.0) >= 0);
    CHECK(!slack.apart(0.0, 0.0, 0.0));
    CHECK(!slack.apart(1.0, 1.0, 1.0));
    CHECK(slack.apart(1.0, 0.5, 1.0));
}

namespace {

// A unit vector at this angle from a unit row, in a random direction.
template <class R>
void turned(Random& random, const std::vector<double>& row, double angle, R* out) {
    std::vector<double> aside(row.size());
    double along = 0, size2 = 0;
    for (std::size_t f = 0; f < row.size(); ++f) along += row[f] * (aside[f] = random.normal());
    for (std::size_t f = 0; f < row.size(); ++f) {
        aside[f] -= along * row[f];
        size2 += aside[f] * aside[f];
    }
    for (std::size_t f = 0; f < row.size(); ++f)
        aside[f] = std::cos(angle) * row[f] + std::sin(angle) * aside[f] / std::sqrt(size2);
    direction(aside.data(), Size(row.size()), 0, out);
}

// A row with a spherical metric against unit centres at nearly equal distances.
template <class R>
void check_directions(int magnitude) {
    Random random(std::uint64_t(sizeof(R)) + 77);
    const double unit = double(std::numeric_limits<R>::epsilon());
    Counts bounds, orders;
    for (int repeat = 0; repeat < 4000; ++repeat) {
        const Size d = repeat % 3 ? random.between(2, 8) : random.between(9, 90);
        const double size = std::ldexp(1.0, magnitude);
        const Matrix<R> x(1, d, [&] { return random.normal() * size; });
        const double length_of_x = length(x.row(0), d);
        std::vector<double> unit_row(static_cast<std::size_t>(d));
        for (Size f = 0; f < d; ++f) unit_row[std::size_t(f)] = double(x(0, f)) / length_of_x;
        const double angle = std::pow(10.0, -double(random.below(5)));
        Matrix<R> centres(4, d);
        for (Size j = 0; j < centres.n; ++j) {
            const double gap = unit * std::pow(4.0, double(random.below(12)));
            turned(random, unit_row, angle * (1 + gap * random.unit()), &centres(j, 0));
        }
        const RowSlack slack =
            RowSlack::directed(Slack::directed<R>(d, d, length_of_x, 0), length_of_x);
        CHECK(slack.holds());
        std::vector<Pair<R>> pairs;
        for (Size j = 0; j < centres.n; ++j) {
            R score = 0;
            long double chord2 = 0, norm2 = 0;
            for (Size f = 0; f < d; ++f) norm2 += static_cast<long double>(x(0, f)) * x(0, f);
            for (Size f = 0; f < d; ++f) {
                score = std::fma(x(0, f), -centres(j, f), score);
                const long double step = x(0, f) / std::sqrt(norm2) - centres(j, f);
                chord2 += step * step;
            }
            pairs.push_back({double(score), std::sqrt(chord2)});
        }
        for (const Pair<R>& pair : pairs) {
            ++bounds.trials;
            bounds.wrong += slack.upper(pair.score) < pair.distance - truth_error;
            bounds.wrong += slack.lower(pair.score) > pair.distance + truth_error;
            const double raw = std::sqrt(std::max(0.0, 2 + 2 * pair.score / length_of_x));
            bounds.raw_wrong += std::fabs(raw - pair.distance) > truth_error;
        }
        for (const Pair<R>& near : pairs)
            for (const Pair<R>& far : pairs) {
                if (far.distance <= near.distance + truth_error) continue;
                ++orders.trials;
                const bool ordered = far.score > near.score;
                orders.raw_wrong += !ordered;
                orders.wrong +=
                    !ordered && slack.apart(double(far.distance), double(near.distance));
                orders.wrong +=
                    !ordered && slack.apart(slack.lower(far.score), slack.upper(near.score));
            }
    }
    bounds.expect_no_error_but_teeth();
    orders.expect_no_error_but_teeth();
}

}  // namespace

TEST(float_directions) { check_directions<float>(0); }
TEST(double_directions) { check_directions<double>(0); }
TEST(float_directions_of_long_rows) { check_directions<float>(30); }
TEST(double_directions_of_short_rows) { check_directions<double>(-200); }

TEST(directions_whose_products_underflow_are_never_pruned) {
    CHECK(Slack::directed<float>(10, 10, 1e-20, 0).holds());
    CHECK(!Slack::directed<float>(10, 10, 0x1p-130, 0).holds());
    CHECK(!Slack::directed<float>(10, 10, 0.0, 0).holds());
    CHECK(!Slack::directed<double>(10, 10, 0x1p-1060, -600).holds());
    // Packed centres lose bits, and an ordinary row multiplies the error.
    CHECK(!Slack::directed<float>(10, 10, 1.0, -140).holds());
    CHECK(Slack::directed<float>(10, 10, 1.0, -60).holds());
}
