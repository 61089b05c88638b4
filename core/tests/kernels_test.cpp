// Every instruction set that this CPU runs, against the canonical score in scalar code, bit for
// bit.
#include "exactmeans/kernels/dispatch.hpp"
#include "exactmeans/kernels/scores.hpp"
#include "exactmeans/kernels/vectors.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.hpp"
#include "exactmeans/centres/layout_cache.hpp"
#include "exactmeans/centres/packed_csr_rows.hpp"
#include "isas.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

const Size every_d[] = {1, 2, 3, 7, 8, 16, 17, 54, 100, 300};
const Size every_k[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 20, 27, 33, 50, 100, 113, 129};

template <class R>
struct Answer {
    std::int32_t label;
    R score, second;
};

// The chain over entries (feature, value) in order; `centre` has minus the values of the centre.
template <class R, class I>
R canonical_score(const std::vector<I>& index, const std::vector<R>& value, const R* centre,
                  R score_offset) {
    const auto chain = [&](std::size_t begin, std::size_t end) {
        R sum = 0;
        for (std::size_t t = begin; t < end; ++t) sum = std::fma(value[t], centre[index[t]], sum);
        return sum;
    };
    const std::size_t terms = value.size();
    if (sizeof(R) == 8 || terms <= 4096) return chain(0, terms) + score_offset;
    double total = 0;
    for (std::size_t begin = 0; begin < terms; begin += 256) {
        total += double(chain(begin, std::min(terms, begin + 256)));
    }
    return R(total) + score_offset;
}

template <class R, class I>
struct Entries {
    std::vector<I> index;
    std::vector<R> value;
};

template <class R, class I>
std::vector<Answer<R>> answers(const std::vector<Entries<R, I>>& rows, const Matrix<R>& centres,
                               const R* score_offset) {
    Matrix<R> minus = centres;
    for (R& v : minus.values) v = -v;
    std::vector<Answer<R>> out;
    for (const Entries<R, I>& row : rows) {
        constexpr R inf = std::numeric_limits<R>::infinity();
        Answer<R> best{0, inf, inf};
        for (Size j = 0; j < centres.n; ++j) {
            const R score = canonical_score(row.index, row.value, minus.row(j), score_offset[j]);
            if (score < best.score) {
                best = {std::int32_t(j), score, best.score};
            } else {
                best.second = std::min(best.second, score);
            }
        }
        out.push_back(best);
    }
    return out;
}

// Runs one kernel on the first n rows, with and without the second score; guards around the results
// detect writes out of bounds.
template <class R, class Run>
void check_run(const char* what, Size n, const std::vector<Answer<R>>& wanted, Run run) {
    for (const bool with_second : {true, false}) {
        const std::size_t size = std::size_t(n) + 2;
        std::vector<std::int32_t> label(size, -7);
        std::vector<R> score(size, R(-7)), second(size, R(-7));
        run(Nearest<R>{label.data() + 1, score.data() + 1,
                       with_second ? second.data() + 1 : nullptr});
        Size wrong = 0;
        for (std::size_t i = 0; i < std::size_t(n); ++i) {
            wrong += label[i + 1] != wanted[i].label || !same_bits(score[i + 1], wanted[i].score);
            wrong +=
                with_second ? !same_bits(second[i + 1], wanted[i].second) : second[i + 1] != -7;
        }
        for (const std::size_t fence : {std::size_t(0), size - 1}) {
            wrong += label[fence] != -7 || score[fence] != -7 || second[fence] != -7;
        }
        if (wrong) {
            check::fail(what, int(n), std::to_string(wrong) + " results differ from the contract");
        }
    }
}

// Every remainder of a tile; fewer for long rows, which cost time and add no coverage.
std::vector<Size> row_counts(Size n, Size d) {
    std::vector<Size> out;
    for (Size t = 1; t <= std::min<Size>(13, n); t += d < 100 ? 1 : 4) out.push_back(t);
    for (const Size some : {Size(43), n})  // whole vectors of rows, and a remainder
        if (out.back() < some && some <= n) out.push_back(some);
    return out;
}

std::string name_of(const char* kernel, const char* isa, const char* type, Size d, Size k) {
    return std::string(kernel) + " " + isa + " " + type + " d=" + std::to_string(d) +
           " k=" + std::to_string(k) + " n";
}

template <class R>
void check_dense(const Matrix<R>& x, const Matrix<R>& centres) {
    const Centres<R> centroids(centres.values.data(), centres.n, centres.d, {}, Threads{});
    const HeldPanels<R> layout = LayoutCache<R>().panels(centroids, true, Threads{});
    // Each row has its own allocation, so that AddressSanitizer detects reads past it.
    std::vector<Entries<R, std::int32_t>> rows(static_cast<std::size_t>(x.n));
    std::vector<const R*> pointers;
    for (Size i = 0; i < x.n; ++i) {
        rows[i].value.assign(x.row(i), x.row(i) + x.d);
        for (Size f = 0; f < x.d; ++f) rows[i].index.push_back(std::int32_t(f));
        pointers.push_back(rows[i].value.data());
    }
    const auto wanted = answers(rows, centres, centroids.score_offset());
    for (const Isa* table : isas()) {
        const std::string name =
            name_of("dense", table->name, sizeof(R) == 4 ? "float" : "double", x.d, centres.n);
        for (const Size n : row_counts(x.n, x.d)) {
            const std::vector<const R*> some(pointers.begin(), pointers.begin() + n);
            check_run(name.c_str(), n, wanted, [&](const Nearest<R>& out) {
                table->scores<R>().nearest_dense(some.data(), n, nullptr, layout, out);
            });
        }
    }
}

// Short rows, which the kernel shifts.
template <class R>
void check_shifted(const Matrix<R>& x, const Matrix<R>& centres, Random& random) {
    if (x.d > short_row_features<R>) return;
    const Matrix<R> shift(1, x.d, [&] { return 3 + 0.1 * random.normal(); });
    const Centres<R> centroids(centres.values.data(), centres.n, centres.d, {}, Threads{});
    std::vector<Entries<R, std::int32_t>> moved(static_cast<std::size_t>(x.n));
    std::vector<const R*> pointers;
    for (Size i = 0; i < x.n; ++i) {
        for (Size f = 0; f < x.d; ++f) {
            moved[i].index.push_back(std::int32_t(f));
            moved[i].value.push_back(x.row(i)[f] - shift.row(0)[f]);
        }
        pointers.push_back(x.row(i));
    }
    const auto wanted = answers(moved, centres, centroids.score_offset());
    for (const Isa* table : isas())
        for (const Size n : row_counts(x.n, x.d))
            check_run(name_of("shifted", table->name, "row", x.d, centres.n).c_str(), n, wanted,
                      [&](const Nearest<R>& out) {
                          table->scores<R>().nearest_dense(
                              pointers.data(), n, shift.row(0),
                              LayoutCache<R>().panels(centroids, true, Threads{}), out);
                      });
}

// Features in order or renumbered: the packed column of a feature must not matter.
template <class R>
void check_csr_of(const Matrix<R>& x, const Matrix<R>& centres, bool renumbered) {
    Centres<R> centroids(centres.values.data(), centres.n, centres.d, {}, Threads{});
    std::vector<std::uint32_t> packed_columns(static_cast<std::size_t>(x.d));
    for (Size f = 0; f < x.d; ++f) packed_columns[f] = std::uint32_t(renumbered ? x.d - 1 - f : f);
    LayoutCache<R> layouts;
    if (renumbered) layouts.set_packed_columns(packed_columns);
    const HeldPanels<R> layout = layouts.panels(centroids, false, Threads{});
    std::vector<Entries<R, std::uint32_t>> rows(static_cast<std::size_t>(x.n));
    for (Size i = 0; i < x.n; ++i) {
        for (Size f = 0; f < x.d; ++f) {
            if (x(i, f) == 0) continue;
            rows[i].index.push_back(std::uint32_t(f));
            rows[i].value.push_back(x(i, f));
        }
    }
    const auto wanted = answers(rows, centres, centroids.score_offset());
    std::vector<PackedCsrRow<R>> views;
    for (Entries<R, std::uint32_t>& row : rows) {
        for (std::uint32_t& f : row.index) f = packed_columns[f];
        row.index.shrink_to_fit();
        row.value.shrink_to_fit();
        views.push_back({row.index.data(), row.value.data(), Size(row.value.size())});
    }
    for (const Isa* table : isas()) {
        const std::string name = name_of(renumbered ? "csr renumbered" : "csr", table->name,
                                         sizeof(R) == 4 ? "float" : "double", x.d, centres.n);
        for (const Size n : row_counts(x.n, x.d)) {
            const std::vector<PackedCsrRow<R>> some(views.begin(), views.begin() + n);
            check_run(name.c_str(), n, wanted, [&](const Nearest<R>& out) {
                table->scores<R>().nearest_csr(some.data(), n, layout, out);
            });
        }
    }
}

// Gaussian rows; the first is all zero, and some centres duplicate earlier ones.
template <class R>
Matrix<R> random_rows(Random& random, Size n, Size d, double density) {
    Matrix<R> x(n, d, [&] { return random.unit() < density ? random.normal() : 0.0; });
    for (Size f = 0; f < d && n > 1; ++f) x(0, f) = 0;
    return x;
}

template <class R>
Matrix<R> random_centres(Random& random, Size k, Size d) {
    Matrix<R> centres(k, d, [&] { return random.normal(); });
    for (Size j = 2; j < k; j += 3) {
        const Size from = random.below(j);
        for (Size f = 0; f < d; ++f) centres(j, f) = centres(from, f);
    }
    return centres;
}

template <class R>
void check_all_shapes(Size n, bool sparse) {
    Random random(sizeof(R) + sparse);
    for (const Size d : every_d) {
        for (const Size k : every_k) {
            const Matrix<R> centres = random_centres<R>(random, k, d);
            const Matrix<R> x = random_rows<R>(random, n, d, sparse ? 0.3 : 1.0);
            if (!sparse) {
                check_dense(x, centres);
                check_shifted(x, centres, random);
            } else {
                check_csr_of(x, centres, false);
                if (d <= 54) check_csr_of(x, centres, true);
            }
        }
    }
}

// A few rows with exactly known values, through every kernel.
template <class R>
void check_everywhere(const Matrix<R>& x, const Matrix<R>& centres) {
    check_dense(x, centres);
    check_csr_of(x, centres, false);
    check_csr_of(x, centres, true);
}

template <class R>
void check_ties() {
    Random random(9);
    for (const Size k : every_k) {
        // Small integers: every score is exact, and most rows have ties, also across panels.
        const Matrix<R> centres(k, 3, [&] { return double(random.between(-1, 1)); });
        check_everywhere(Matrix<R>(100, 3, [&] { return double(random.between(-2, 2)); }), centres);
        // All centres equal: the first wins, and the second score equals the first.
        const Matrix<R> equal(k, 4, [] { return 0.75; });
        const Matrix<R> x(7, 4, [&] { return random.normal(); });
        check_everywhere(x, equal);
        const Centres<R> centroids(equal.values.data(), k, 4, {}, Threads{});
        for (const Isa* table : isas()) {
            std::int32_t label = -1;
            R score = 0, second = 0;
            const R* row = x.row(3);
            table->scores<R>().nearest_dense(&row, 1, nullptr,
                                             LayoutCache<R>().panels(centroids, true, Threads{}),
                                             {&label, &score, &second});
            CHECK_EQ(label, 0);
            CHECK_EQ(second, k > 1 ? score : std::numeric_limits<R>::infinity());
        }
    }
}

template <class R>
void check_extremes() {
    Random random(10);
    // Scores near the end of the range, of either sign: padding, whose score offset is infinite,
    // must not win.
    const double far = sizeof(R) == 4 ? 1e18 : 1e153;
    for (const Size k : every_k) {
        for (const double scale : {far, 1.0 / far}) {
            const Matrix<R> centres(k, 5, [&] { return random.normal() * scale; });
            Matrix<R> x(13, 5, [&] { return random.normal() * scale; });
            for (Size f = 0; f < 5; ++f) x(0, f) = 0;
            check_everywhere(x, centres);
        }
    }
}

// Centres out of range have infinite or NaN scores. They never win, wherever they are in a panel;
// if all centres are out of range, the first one wins.
template <class R>
void check_overflow() {
    Random random(11);
    const R far = std::numeric_limits<R>::max() / 4;
    for (const Size k : every_k)
        for (const Size d : {3, 40}) {
            Matrix<R> x(29, d, [&] { return random.normal(); });
            for (Size f = 0; f < d; ++f) x(0, f) = 0;
            Matrix<R> centres(k, d, [&] { return random.normal(); });
            const Size only = random.below(k + 1);  // the only centre in range; k: none
            for (Size j = 0; j < k; ++j)
                for (Size f = 0; f < d && j != only; ++f)
                    centres(j, f) = random.coin() ? far : -far;
            const Centres<R> centroids(centres.values.data(), k, d, {}, Threads{});
            CHECK_EQ(centroids.in_range(), k == 1 && only == 0);
            std::vector<const R*> rows;
            for (Size i = 0; i < x.n; ++i) rows.push_back(x.row(i));
            const Csr<R, std::int32_t> csr(x);
            for (const Isa* table : isas()) {
                Labels label(rows.size(), -1);
                std::vector<R> score(rows.size());
                const auto check = [&] {
                    CHECK(label == Labels(rows.size(), only < k ? std::int32_t(only) : 0));
                    for (const R own : score) CHECK_EQ(std::isfinite(own), only < k);
                    std::fill(label.begin(), label.end(), -1);
                };
                table->scores<R>().nearest_dense(
                    rows.data(), x.n, nullptr, LayoutCache<R>().panels(centroids, true, Threads{}),
                    {label.data(), score.data(), nullptr});
                check();
                PackedCsrRows<R> packed_columns;
                const HeldPanels<R> panels = LayoutCache<R>().panels(centroids, false, Threads{});
                table->scores<R>().nearest_csr(
                    packed_columns.load(csr.rows(), panels, 0, nullptr, x.n), x.n, panels,
                    {label.data(), score.data(), nullptr});
                check();
            }
        }
}

}  // namespace

TEST(overflow_float) { check_overflow<float>(); }
TEST(overflow_double) { check_overflow<double>(); }
TEST(dense_float) { check_all_shapes<float>(100, false); }
TEST(dense_double) { check_all_shapes<double>(100, false); }
TEST(csr_float) { check_all_shapes<float>(100, true); }
TEST(csr_double) { check_all_shapes<double>(100, true); }

TEST(long_float_chains_are_split) {
    Random random(5);
    for (const Size d : {4096, 4097, 5000}) {
        for (const Size k : {1, 17, 113}) {
            const Matrix<float> centres = random_centres<float>(random, k, d);
            const Matrix<float> x = random_rows<float>(random, 13, d, 1.0);
            check_dense(x, centres);
            // Only stored entries count: the first rows are shorter than the limit, the others are
            // not.
            Matrix<float> sparse = x;
            for (Size i = 0; i < 6; ++i) {
                for (Size f = 0; f < d; f += 3) sparse(i, f) = 0;
            }
            check_csr_of(sparse, centres, false);
            check_csr_of(sparse, centres, true);
        }
    }
    const Matrix<double> centres = random_centres<double>(random, 9, 5000);
    check_everywhere(random_rows<double>(random, 7, 5000, 1.0), centres);
}

TEST(splitting_changes_bits) {
    // Otherwise the test above could not fail.
    Random random(6);
    constexpr std::size_t d = 5000;
    const Matrix<float> v(2, Size(d), [&] { return random.normal(); });
    std::vector<std::int32_t> index(d);
    for (std::size_t f = 0; f < d; ++f) index[f] = std::int32_t(f);
    float chain = 0;
    for (std::size_t f = 0; f < d; ++f) chain = std::fma(v.values[f], v.row(1)[f], chain);
    const std::vector<float> value(v.row(0), v.row(0) + d);
    CHECK(!same_bits(canonical_score(index, value, v.row(1), 0.0F), chain));
}

TEST(ties_float) { check_ties<float>(); }
TEST(ties_double) { check_ties<double>(); }
TEST(extremes_float) { check_extremes<float>(); }
TEST(extremes_double) { check_extremes<double>(); }

namespace {

bool near(double got, long double wanted, long double slack) {
    return std::fabs(static_cast<long double>(got) - wanted) <= slack;
}

template <class R>
struct Vectors {
    Matrix<R> x, c, shift;
    Matrix<double> high, low, origin;

    Vectors(Random& random, Size d)
        : x(1, d, [&] { return 3 + random.normal(); }),
          c(1, d, [&] { return 3 + random.normal(); }),
          shift(1, d, [&] { return 3 + 0.1 * random.normal(); }),
          high(1, d, [&] { return 100 * random.normal(); }),
          low(1, d, [&] { return 1e-15 * random.normal(); }),
          origin(1, d, [&] { return random.normal(); }) {}
};

// Norms and distances against long double; then against the first table, bit for bit.
template <class R>
void check_vectors(const Isa& table, const Isa& first, const Vectors<R>& v, Size d) {
    const R *x = v.x.row(0), *c = v.c.row(0);
    for (const R* shift : {static_cast<const R*>(nullptr), v.shift.row(0)}) {
        long double norm2 = 0, step2 = 0;
        for (Size f = 0; f < d; ++f) {
            const R a = shift ? R(x[f] - shift[f]) : x[f], b = shift ? R(c[f] - shift[f]) : c[f];
            norm2 += static_cast<long double>(a) * a;
            step2 += (static_cast<long double>(a) - b) * (static_cast<long double>(a) - b);
        }
        const SquareSum sum = table.vectors<R>().square_sum(x, shift, d, 4.0),
                        other = first.vectors<R>().square_sum(x, shift, d, 4.0);
        CHECK(same_bits(sum.high, other.high) && same_bits(sum.low, other.low));
        CHECK(near(sum.value(), 16 * norm2, 0x1p-52L * 16 * norm2));
        // long double is not accurate enough to check `low` for long vectors.
        CHECK(d > 16 || near(sum.low, 16 * norm2 - sum.high, 0x1p-58L * norm2));
        const double step = table.vectors<R>().step2(x, c, shift, d, 0.5);
        CHECK(same_bits(step, first.vectors<R>().step2(x, c, shift, d, 0.5)));
        CHECK(near(step, 0.25L * step2, (static_cast<long double>(d) + 4) * 0x1p-53L * step2));
    }
    long double own = 0, mixed = 0, explained = 0, size = 0;
    for (Size f = 0; f < d; ++f) {
        const long double a = x[f], o = v.origin(0, f), e = c[f] - o;
        own += (a - c[f]) * (a - c[f]);
        mixed += (a - o) * (a - o);
        const long double term =
            e * (2 * (v.high(0, f) + static_cast<long double>(v.low(0, f)) - 7 * o) - 7 * e);
        explained += term;
        size += std::fabs(e) * (2 * std::fabs(v.high(0, f)) + 14 * std::fabs(o) + 7 * std::fabs(e));
    }
    CHECK(near(table.vectors<R>().distance2(x, c, d, 2.0), 4 * own, 0x1p-49L * own));
    CHECK(near(table.vectors<R>().distance2_double(x, v.origin.row(0), d, 2.0), 4 * mixed,
               0x1p-49L * mixed));
    CHECK(same_bits(table.vectors<R>().distance2(x, c, d, 2.0),
                    first.vectors<R>().distance2(x, c, d, 2.0)));
    CHECK(same_bits(table.vectors<R>().distance2_double(x, v.origin.row(0), d, 2.0),
                    first.vectors<R>().distance2_double(x, v.origin.row(0), d, 2.0)));
    const auto explain = [&](const Isa& t) {
        return t.vectors<R>().explained(c, v.high.row(0), v.low.row(0), v.origin.row(0), d, 7.0,
                                        1.0, 1.0);
    };
    CHECK(same_bits(explain(table), explain(first)));
    CHECK(near(explain(table), explained, (static_cast<long double>(d) + 8) * 0x1p-53L * size));
    CHECK(same_bits(table.vectors<R>().distance2(x, x, d, 2.0), 0.0));
}

// Sparse vectors against the same vectors in dense form.
template <class R>
void check_sparse(const Isa& table, const Vectors<R>& v, Size d) {
    std::vector<std::uint32_t> feature;
    for (Size f = 0; f < d; ++f)
        if (f % 3 == 0 || f % 7 == 2) feature.push_back(std::uint32_t(f));
    const Size n = Size(feature.size());
    const auto written = [&](const auto& from) {
        auto out = from;
        for (Size f = 0; f < d; ++f)
            if (f % 3 != 0 && f % 7 != 2) out(0, f) = 0;
        return out;
    };
    const auto sparse = [&](const auto& from) {
        auto out = from.values;
        for (Size t = 0; t < n; ++t) out[std::size_t(t)] = from(0, Size(feature[std::size_t(t)]));
        return out;
    };
    const Matrix<R> x = written(v.x), c = written(v.c);
    const Matrix<double> high = written(v.high), low = written(v.low), origin(1, d);
    const SquareSum sum = table.vectors<R>().square_sum(x.row(0), nullptr, d, 0.5),
                    own = table.vectors<R>().sparse_square_sum(feature.data(), sparse(v.x).data(),
                                                               n, 0.5);
    CHECK(same_bits(sum.high, own.high) && same_bits(sum.low, own.low));
    CHECK(same_bits(table.vectors<R>().step2(x.row(0), c.row(0), nullptr, d, 4.0),
                    table.vectors<R>().sparse_step2(feature.data(), sparse(v.x).data(),
                                                    sparse(v.c).data(), n, 4.0)));
    for (const bool two : {false, true}) {
        const std::vector<double> lows = sparse(v.low);
        CHECK(same_bits(
            table.vectors<R>().explained(c.row(0), high.row(0), two ? low.row(0) : nullptr,
                                         origin.row(0), d, 7.0, 2.0, 0.5),
            table.vectors<R>().sparse_explained(feature.data(), sparse(v.c).data(),
                                                sparse(v.high).data(), two ? lows.data() : nullptr,
                                                n, 7.0, 2.0, 0.5)));
        const SparseUpdate update = table.vectors<R>().sparse_update(
            feature.data(), sparse(v.c).data(), sparse(v.x).data(), sparse(v.high).data(),
            two ? lows.data() : nullptr, n, 7.0, 2.0, 0.5);
        const SquareSum there = table.vectors<R>().square_sum(x.row(0), nullptr, d, 2.0);
        CHECK(same_bits(update.explained, table.vectors<R>().explained(
                                              c.row(0), high.row(0), two ? low.row(0) : nullptr,
                                              origin.row(0), d, 7.0, 2.0, 0.5)));
        CHECK(
            same_bits(update.step2, table.vectors<R>().step2(x.row(0), c.row(0), nullptr, d, 2.0)));
        CHECK(same_bits(update.square_sum.high, there.high));
        CHECK(same_bits(update.square_sum.low, there.low));
    }
}

// Sums and means against scalar code.
template <class R>
void check_sums(const Isa& table, const Vectors<R>& v, Size d) {
    const R* x = v.x.row(0);
    std::vector<double> sum(v.high.values), high(v.high.values), low(v.low.values);
    table.vectors<R>().add_row(sum.data(), x, -0.3, d);
    for (Size f = 0; f < d; ++f) {
        const double product = -0.3 * double(x[f]);
        CHECK(same_bits(sum[f], v.high(0, f) + product));
    }
    const double share = 0.6180339887498949;
    std::vector<double> magic(static_cast<std::size_t>(d));
    for (Size f = 0; f < d; ++f) magic[f] = std::ldexp(1.5, int(20 + f % 9));
    for (const Size step : {0, 1}) {
        std::fill(high.begin(), high.end(), 0.0);
        std::fill(low.begin(), low.end(), 0.0);
        table.vectors<R>().add_row2(high.data(), low.data(), x, magic.data(), step, share, 8.0, d);
        for (Size f = 0; f < d; ++f) {
            const double value = share * double(x[f]) * 8, m = magic[f * step];
            const double part = (value + m) - m;
            CHECK(same_bits(high[f], part) && same_bits(low[f], value - part));
        }
        const Size columns = step ? d : 1;
        CHECK(!table.vectors<R>().fits_bins(x, magic.data(), columns, 1, share, 8.0, d));
        // The first part of each value fits by itself.
        std::vector<R> parts(static_cast<std::size_t>(d));
        for (Size f = 0; f < d; ++f) parts[f] = R(std::ldexp(std::nearbyint(high[f] * 4), 8));
        CHECK(table.vectors<R>().fits_bins(parts.data(), magic.data(), columns, 1, 1.0, 1.0, d));
        // A single entry that does not fit is found at any position.
        const Size at = d * 2 / 3;
        parts[at] = R(0x1p-40);
        CHECK(!table.vectors<R>().fits_bins(parts.data(), magic.data(), columns, 1, 1.0, 1.0, d));
    }
    std::vector<R> mean(static_cast<std::size_t>(d)), exact(static_cast<std::size_t>(d));
    table.vectors<R>().mean(v.high.row(0), v.low.row(0), 7.0, 0x1p-55, 0.5, d, mean.data());
    table.vectors<R>().mean(v.high.row(0), nullptr, 7.0, 0.0, 1.0, d, exact.data());
    for (Size f = 0; f < d; ++f) {
        const long double wanted =
            (v.high(0, f) + static_cast<long double>(v.low(0, f))) / (7 + 0x1p-55L) / 2;
        CHECK_EQ(mean[f], R(wanted));
        CHECK_EQ(exact[f], R(static_cast<long double>(v.high(0, f)) / 7));
    }
}

template <class R>
void check_all_vectors() {
    Random random(20);
    for (const Size d : {1, 2, 7, 8, 9, 15, 16, 17, 100, 255, 256, 257, 1000}) {
        const Vectors<R> v(random, d);
        for (const Isa* table : isas()) {
            check_vectors(*table, *isas()[0], v, d);
            check_sparse(*table, v, d);
            check_sums(*table, v, d);
        }
    }
}

}  // namespace

TEST(vectors_float) { check_all_vectors<float>(); }
TEST(vectors_double) { check_all_vectors<double>(); }

TEST(float_means_are_rounded_once) {
    // A quotient that float64 rounds to the midpoint of two float32 values, although it lies beside
    // it.
    for (const Isa* table : isas()) {
        const double middle = 1 + 0x1p-24;
        for (const double sign : {1.0, -1.0}) {
            const double high = sign * middle;
            for (const double beside : {0x1p-80, -0x1p-80}) {
                const double low = sign * beside;
                float mean = 0;
                table->vectors<float>().mean(&high, &low, 1.0, 0.0, 1.0, 1, &mean);
                CHECK_EQ(mean, float(sign) * (beside > 0 ? 1 + 0x1p-23F : 1.0F));
            }
        }
    }
}

// Scores that are not numbers hide no other score.
template <class R>
void check_lowest_two() {
    constexpr R infinity = std::numeric_limits<R>::infinity();
    Random random(9);
    Size exact = 0;
    for (const Isa* isa : isas())
        for (int round = 0; round < 400; ++round) {
            const Size k = random.between(1, 90);
            std::vector<R> scores(static_cast<std::size_t>(k)), sorted;
            for (R& score : scores) {
                score = R(random.between(-9, 9));
                if (round % 2 && random.below(3) == 0)
                    score = random.coin() ? infinity : std::numeric_limits<R>::quiet_NaN();
                if (!std::isnan(score)) sorted.push_back(score);
            }
            sorted.resize(sorted.size() + 2, infinity);
            std::sort(sorted.begin(), sorted.end());
            std::int32_t label = -1;
            R low = 0, second = 0;
            isa->scores<R>().lowest_two(scores.data(), 1, k, {&label, &low, &second});
            CHECK_EQ(low, sorted[0]);
            if (low < infinity)
                CHECK_EQ(label, std::find(scores.begin(), scores.end(), low) - scores.begin());
            CHECK(second == sorted[1] || (round % 2 && second == low));
            exact += second == sorted[1];
        }
    CHECK(exact > Size(isas().size()) * 300);
}
TEST(lowest_two_float) { check_lowest_two<float>(); }
TEST(lowest_two_double) { check_lowest_two<double>(); }

TEST(no_rows_at_all) {
    const Matrix<float> centres(3, 2);
    const Centres<float> centroids(centres.values.data(), 3, 2, {}, Threads{});
    for (const Isa* table : isas()) {
        table->scores<float>().nearest_dense(
            nullptr, 0, nullptr, LayoutCache<float>().panels(centroids, true, Threads{}),
            {nullptr, nullptr, nullptr});
        table->scores<float>().nearest_csr(nullptr, 0,
                                           LayoutCache<float>().panels(centroids, false, Threads{}),
                                           {nullptr, nullptr, nullptr});
    }
}

TEST(the_choice_of_an_instruction_set) {
    const std::vector<std::string> usable = usable_isas();
    CHECK_EQ(usable.back(), "baseline");
    CHECK(std::find(usable.begin(), usable.end(), active_isa()) != usable.end());
    CHECK_EQ(isas().size(), usable.size());
    for (const Isa* isa : isas()) {
        // Sets with integer dot products share the other tables with the set below them.
        const bool active = isa->name == active_isa();
        if (!active && std::string(isa->name) != "baseline") continue;
        CHECK_EQ(&isa->scores<float>() == &score_kernels<float>(), active);
        CHECK_EQ(&isa->vectors<double>() == &vector_kernels<double>(), active);
    }
}
