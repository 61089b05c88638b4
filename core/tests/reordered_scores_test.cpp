// Labels of float32 rows by scores that are summed in another order than the canonical one.
#include <algorithm>
#include <utility>
#include <vector>

#include "check.hpp"
#include "exactmeans/centres/canonical_score.hpp"
#include "exactmeans/scan/scan.hpp"
#include "samples.hpp"

using namespace exactmeans;
using namespace samples;

namespace {

constexpr Size n = 500, d = 5000, k = 21, cut_rows = 20;

// The scores of each row and its two nearest centres differ by a few roundings of float32. The
// canonical chains of the first rows are cut.
Matrix<float> rows_of(Random& random, const Matrix<float>& centres) {
    Matrix<float> x(n, d, [&] { return random.below(7) ? 0.0 : random.uniform(-0.3, 1.0); });
    for (Size i = 0; i < n; ++i) {
        if (i < cut_rows)
            for (Size f = 0; f < d; ++f)
                if (x(i, f) == 0.0f) x(i, f) = float(random.uniform(-0.3, 1.0));
        std::vector<std::pair<double, Size>> score;
        for (Size j = 0; j < k; ++j) {
            score.push_back({0.0, j});
            for (Size f = 0; f < d; ++f)
                score.back().first += (0.5 * centres(j, f) - double(x(i, f))) * centres(j, f);
        }
        std::sort(score.begin(), score.end());
        const Size a = score[0].second, b = score[1].second;
        const auto difference = [&](Size f) { return double(centres(b, f)) - centres(a, f); };
        double length2 = 0;
        for (Size f = 0; f < d; ++f)
            if (x(i, f) != 0.0f) length2 += difference(f) * difference(f);
        const double step = (score[1].first - score[0].first) / length2;
        for (Size f = 0; f < d; ++f)
            if (x(i, f) != 0.0f) x(i, f) += float(step * difference(f));
    }
    return x;
}

template <class I>
void check_labels(double scale) {
    Random random(11);
    const Threads threads{2};
    Matrix<float> centres(k, d, [&] { return random.below(5) ? 0.0 : random.uniform(-0.2, 1.0); });
    Matrix<float> x = rows_of(random, centres);
    for (float& value : centres.values) value *= float(scale);
    for (float& value : x.values) value *= float(scale);
    Frame<float> frame;
    frame.exponent = safe_exponent<float>(scale);
    SharedCentres<float> shared(Centres<float>(sparse_of(centres), d, frame, threads));
    const Centres<float>& centroids = shared.centres;
    shared.layouts.set_rare_below(5);
    const Csr<float, I> csr(x);
    const auto rows = csr.rows();
    RowSlacks<float> slacks;
    Work<CsrRows<float, I>> work(rows, shared, nullptr, slacks);
    work.pack_centres(threads);
    work.measure_rows(threads);
    CHECK(work.reordered());

    std::vector<Size> by_reordered(static_cast<std::size_t>(n));
    Scan<CsrRows<float, I>> scan;
    scan.nearest_with_scores(work, 0, n, [&](Size t, Size m, const float* scores) {
        for (Size r = 0; r < m; ++r)
            by_reordered[std::size_t(t + r)] =
                Size(std::min_element(scores + r * k, scores + (r + 1) * k) - (scores + r * k));
    });
    CanonicalScore<float> canonical;
    Size differ = 0, differ_cut = 0;
    for (Size i = 0; i < n; ++i) {
        std::vector<float> wanted;
        for (Size j = 0; j < k; ++j) wanted.push_back(canonical(centroids, rows.row(i), j));
        const Size label = Size(std::min_element(wanted.begin(), wanted.end()) - wanted.begin());
        CHECK_EQ(Size(scan.label[std::size_t(i)]), label);
        (i < cut_rows ? differ_cut : differ) += by_reordered[std::size_t(i)] != label;
    }
    // The order of summation alone would change labels.
    CHECK(differ > 50);
    CHECK(differ_cut > 0);
}

}  // namespace

TEST(labels_are_those_of_canonical_scores) {
    for (const double scale : {1.0, 0x1p-14, 0x1p20, 0x1p-45}) {
        check_labels<std::int32_t>(scale);
        check_labels<std::int64_t>(scale);
    }
}
