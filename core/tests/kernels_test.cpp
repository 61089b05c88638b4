// Every instruction set that runs here, against the contract written out in scalar code: bit for
// bit.
#include "exactmeans/kernels.hpp"

#include <algorithm>
#include <limits>

#include "../src/kernels/isa.hpp"
#include "check.hpp"
#include "exactmeans/centroids.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

const Size every_d[] = {1, 2, 3, 7, 8, 16, 17, 54, 100, 300};
const Size every_k[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 20, 33, 100, 113, 129};

template <class R>
std::vector<const Kernels<R>*> tables() {
    std::vector<const Kernels<R>*> out;
    const auto add = [&](const Isa& isa) {
        const std::vector<std::string> usable = usable_isas();
        if (std::find(usable.begin(), usable.end(), isa.name) == usable.end()) return;
        if constexpr (sizeof(R) == 4) {
            out.push_back(&isa.single_precision);
        } else {
            out.push_back(&isa.double_precision);
        }
    };
    add(isa_baseline);
#if defined(__x86_64__) || defined(_M_X64)
    add(isa_avx2);
#elif defined(__aarch64__) || defined(_M_ARM64)
    add(isa_neon);
#endif
    return out;
}

template <class R>
struct Answer {
    std::int32_t label;
    R score, second;
};

// The chain over entries (feature, value) in order; `centre` has minus the centre's values.
template <class R, class I>
R canonical_score(const std::vector<I>& index, const std::vector<R>& value, const R* centre,
                  R start) {
    const auto chain = [&](std::size_t begin, std::size_t end) {
        R sum = 0;
        for (std::size_t t = begin; t < end; ++t) sum = std::fma(value[t], centre[index[t]], sum);
        return sum;
    };
    const std::size_t terms = value.size();
    if (sizeof(R) == 8 || terms <= 4096) return chain(0, terms) + start;
    double total = 0;
    for (std::size_t begin = 0; begin < terms; begin += 256) {
        total += double(chain(begin, std::min(terms, begin + 256)));
    }
    return R(total) + start;
}

template <class R, class I>
struct Entries {
    std::vector<I> index;
    std::vector<R> value;
};

template <class R, class I>
std::vector<Answer<R>> answers(const std::vector<Entries<R, I>>& rows, const Matrix<R>& centres,
                               const R* start) {
    Matrix<R> minus = centres;
    for (R& v : minus.values) v = -v;
    std::vector<Answer<R>> out;
    for (const Entries<R, I>& row : rows) {
        constexpr R inf = std::numeric_limits<R>::infinity();
        Answer<R> best{0, inf, inf};
        for (Size j = 0; j < centres.n; ++j) {
            const R score = canonical_score(row.index, row.value, minus.row(j), start[j]);
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

// Runs one kernel on the first n rows, with and without the second score; results are fenced.
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

// Every remainder of a tile; fewer of them for long rows, which cost time and prove no more.
std::vector<Size> row_counts(Size n, Size d) {
    std::vector<Size> out;
    for (Size t = 1; t <= std::min<Size>(13, n); t += d < 100 ? 1 : 4) out.push_back(t);
    if (out.back() < n) out.push_back(n);
    return out;
}

std::string name_of(const char* kernel, const char* isa, const char* type, Size d, Size k) {
    return std::string(kernel) + " " + isa + " " + type + " d=" + std::to_string(d) +
           " k=" + std::to_string(k) + " n";
}

template <class R>
void check_dense(const Matrix<R>& x, const Matrix<R>& centres) {
    const Centroids<R> centroids(centres.values.data(), centres.n, centres.d, {}, Threads{});
    const Panels<R> layout = centroids.panels(Threads{});
    // Each row in memory of its own, so that AddressSanitizer sees a read beyond it.
    std::vector<Entries<R, std::int32_t>> rows(static_cast<std::size_t>(x.n));
    std::vector<const R*> pointers;
    for (Size i = 0; i < x.n; ++i) {
        rows[i].value.assign(x.row(i), x.row(i) + x.d);
        for (Size f = 0; f < x.d; ++f) rows[i].index.push_back(std::int32_t(f));
        pointers.push_back(rows[i].value.data());
    }
    const auto wanted = answers(rows, centres, centroids.start());
    for (const Kernels<R>* table : tables<R>()) {
        const std::string name =
            name_of("dense", table->isa, sizeof(R) == 4 ? "float" : "double", x.d, centres.n);
        for (const Size n : row_counts(x.n, x.d)) {
            const std::vector<const R*> some(pointers.begin(), pointers.begin() + n);
            check_run(name.c_str(), n, wanted, [&](const Nearest<R>& out) {
                table->nearest_dense(some.data(), n, layout, out);
            });
        }
    }
}

template <class R, class I>
void check_csr_of(const Matrix<R>& x, const Matrix<R>& centres) {
    const Centroids<R> centroids(centres.values.data(), centres.n, centres.d, {}, Threads{});
    const FeatureMajor<R> layout = centroids.feature_major(Threads{});
    std::vector<Entries<R, I>> rows(static_cast<std::size_t>(x.n));
    std::vector<SparseRow<R, I>> views;
    for (Size i = 0; i < x.n; ++i) {
        for (Size f = 0; f < x.d; ++f) {
            if (x(i, f) == 0) continue;
            rows[i].index.push_back(I(f));
            rows[i].value.push_back(x(i, f));
        }
        rows[i].index.shrink_to_fit();
        rows[i].value.shrink_to_fit();
        views.push_back({rows[i].index.data(), rows[i].value.data(), Size(rows[i].value.size())});
    }
    const auto wanted = answers(rows, centres, centroids.start());
    for (const Kernels<R>* table : tables<R>()) {
        const std::string name = name_of(sizeof(I) == 4 ? "csr32" : "csr64", table->isa,
                                         sizeof(R) == 4 ? "float" : "double", x.d, centres.n);
        for (const Size n : row_counts(x.n, x.d)) {
            const std::vector<SparseRow<R, I>> some(views.begin(), views.begin() + n);
            check_run(name.c_str(), n, wanted, [&](const Nearest<R>& out) {
                if constexpr (sizeof(I) == 4) {
                    table->nearest_csr32(some.data(), n, layout, out);
                } else {
                    table->nearest_csr64(some.data(), n, layout, out);
                }
            });
        }
    }
}

// Gaussian rows; the first is all zero, and some centres are copies of earlier ones.
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
            } else {
                check_csr_of<R, std::int32_t>(x, centres);
                if (d <= 54) check_csr_of<R, std::int64_t>(x, centres);
            }
        }
    }
}

// A handful of rows at exactly known places, through every kernel.
template <class R>
void check_everywhere(const Matrix<R>& x, const Matrix<R>& centres) {
    check_dense(x, centres);
    check_csr_of<R, std::int32_t>(x, centres);
    check_csr_of<R, std::int64_t>(x, centres);
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
        const Centroids<R> centroids(equal.values.data(), k, 4, {}, Threads{});
        for (const Kernels<R>* table : tables<R>()) {
            std::int32_t label = -1;
            R score = 0, second = 0;
            const R* row = x.row(3);
            table->nearest_dense(&row, 1, centroids.panels(Threads{}), {&label, &score, &second});
            CHECK_EQ(label, 0);
            CHECK_EQ(second, k > 1 ? score : std::numeric_limits<R>::infinity());
        }
    }
}

template <class R>
void check_extremes() {
    Random random(10);
    // Scores near the end of the range, of either sign: padding, which starts at infinity, must not
    // win.
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

}  // namespace

TEST(dense_float) { check_all_shapes<float>(100, false); }
TEST(dense_double) { check_all_shapes<double>(100, false); }
TEST(csr_float) { check_all_shapes<float>(100, true); }
TEST(csr_double) { check_all_shapes<double>(100, true); }

TEST(long_float_chains_are_cut) {
    Random random(5);
    for (const Size d : {4096, 4097, 5000}) {
        for (const Size k : {1, 17, 113}) {
            const Matrix<float> centres = random_centres<float>(random, k, d);
            const Matrix<float> x = random_rows<float>(random, 13, d, 1.0);
            check_dense(x, centres);
            // Only stored entries count: the first rows below are short of the limit, the others
            // not.
            Matrix<float> sparse = x;
            for (Size i = 0; i < 6; ++i) {
                for (Size f = 0; f < d; f += 3) sparse(i, f) = 0;
            }
            check_csr_of<float, std::int32_t>(sparse, centres);
            check_csr_of<float, std::int64_t>(sparse, centres);
        }
    }
    const Matrix<double> centres = random_centres<double>(random, 9, 5000);
    check_everywhere(random_rows<double>(random, 7, 5000, 1.0), centres);
}

TEST(cutting_changes_bits) {
    // Else the test above could not tell.
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

TEST(no_rows_at_all) {
    const Matrix<float> centres(3, 2);
    const Centroids<float> centroids(centres.values.data(), 3, 2, {}, Threads{});
    for (const Kernels<float>* table : tables<float>()) {
        table->nearest_dense(nullptr, 0, centroids.panels(Threads{}), {nullptr, nullptr, nullptr});
        table->nearest_csr32(nullptr, 0, centroids.feature_major(Threads{}),
                             {nullptr, nullptr, nullptr});
    }
}

TEST(the_choice_of_an_instruction_set) {
    const std::vector<std::string> usable = usable_isas();
    CHECK_EQ(usable.back(), "baseline");
    CHECK(std::find(usable.begin(), usable.end(), active_isa()) != usable.end());
    CHECK_EQ(std::string(kernels<float>().isa), active_isa());
    CHECK_EQ(std::string(kernels<double>().isa), active_isa());
    CHECK_EQ(tables<float>().size(), usable.size());
}
