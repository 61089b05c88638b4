#include <nanobind/stl/pair.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/project/principal_directions.hpp"
#include "exactmeans/seed/csr.hpp"
#include "exactmeans/seed/dense.hpp"
#include "exactmeans/seed/greedy.hpp"
#include "exactmeans/seed/manhattan.hpp"
#include "exactmeans/seed/random_state.hpp"

namespace exactmeans {
namespace {

using WeightBins = std::pair<double, double>;

WeightBins weight_bins(const SamplingWeight& weight) { return {weight.high, weight.low}; }

using Measure = SeedBlock::Measure;

template <class R>
std::unique_ptr<SeedBlock> make_block(const DenseRows<R>& x, Measure measure, double,
                                      const Threads&, bool streamed) {
    return std::make_unique<DenseSeedBlock<R>>(x, measure, streamed);
}
template <class R, class I>
std::unique_ptr<SeedBlock> make_block(const CsrRows<R, I>& x, Measure measure, double scale,
                                      const Threads& threads, bool streamed) {
    return std::make_unique<CsrSeedBlock<R, I>>(x, measure, scale, threads, streamed);
}

template <bool streamed>
std::unique_ptr<SeedBlock> seed_block(const Block& block, double alpha, int exponent, int n_jobs) {
    const Measure measure{alpha, block.metric};
    auto made = unlocked(n_jobs, [&](const Threads& threads) {
        return std::visit(
            [&](const auto& x) -> std::unique_ptr<SeedBlock> {
                using Rows = std::decay_t<decltype(x)>;
                if (measure.metric == Metric::manhattan)
                    return std::make_unique<ManhattanSeedBlock<Rows>>(x, measure);
                return make_block(x, measure, std::ldexp(1.0, exponent), threads, streamed);
            },
            block.rows);
    });
    if (streamed) {
        made->detach();
        made->set_budget(std::size_t(cost::streamed_evaluation_bytes * made->n()));
    }
    return made;
}

void must_be_attached(const SeedBlock& block) {
    require(block.attached(), "the rows of this block are not in memory");
}

void stage(SeedPoints& points, const Block& block, const std::vector<Size>& ids) {
    require(points.d() == column_count(block.rows), "points and rows differ in width");
    std::visit(
        [&](const auto& x) {
            for (const Size i : ids) points.stage(x, i);
        },
        block.rows);
}

std::vector<Size> find(const SeedBlock& block, const WeightBins& before,
                       const std::vector<double>& targets) {
    std::vector<Size> rows;
    for (const double target : targets)
        rows.push_back(block.find({before.first, before.second}, target));
    return rows;
}

std::vector<WeightBins> totals_left(SeedBlock& block, SeedPoints& points, int n_jobs) {
    must_be_attached(block);
    const auto left = unlocked(
        n_jobs, [&](const Threads& threads) { return block.totals_after(points, threads); });
    std::vector<WeightBins> out;
    for (const SamplingWeight& weight : left) out.push_back(weight_bins(weight));
    return out;
}

std::vector<Size> greedy(SeedBlock& block, SeedPoints& points, const Block& rows,
                         const Array<const double, 2>& shares, double enough, int n_jobs) {
    must_be_attached(block);
    const GreedyShares given{shares.data(), Size(shares.shape(0)), Size(shares.shape(1))};
    require(given.candidates > 0, "shares must have at least one column");
    return unlocked(n_jobs, [&](const Threads& threads) {
        const auto stage_rows = [&](const std::vector<Size>& ids) { stage(points, rows, ids); };
        return greedy_seeds(block, points, stage_rows, given, enough, threads);
    });
}

Size row_at_place(double place, Size n, const std::optional<Array<const double, 1>>& weights,
                  double total) {
    require(n > 0 && (!weights || Size(weights->shape(0)) == n),
            "there must be one weight per row");
    const double* weight = weights ? weights->data() : nullptr;
    return unlocked(
        1, [&](const Threads& threads) { return row_at(place, n, weight, total, threads); });
}

// Projects rows, minus an origin, onto orthonormal axes, or onto the features if there are no axes.
// Origin and range are in the units of the data.
void project(SeedBlock& block, const Array<const double, 1>& origin,
             const Array<const double, 2>& axes, double range, int exponent, int n_jobs) {
    require(axes.shape(1) == origin.shape(0), "origin and axes differ in width");
    require(range > 0, "range must be positive");
    must_be_attached(block);
    const double scale = std::ldexp(1.0, exponent);
    std::vector<double> from(origin.data(), origin.data() + origin.shape(0));
    for (double& value : from) value *= scale;
    const std::vector<double> along(axes.data(), axes.data() + axes.size());
    unlocked(n_jobs, [&](const Threads& threads) {
        block.project(Projection(std::move(from), along, range * scale, scale), threads);
    });
}

}  // namespace

void bind_seed(nb::module_& m) {
    m.attr("regrid_fall") = regrid_fall;
    m.def("leading_directions", [](const Array<const double, 2>& rows, Size count) {
        const Size n = Size(rows.shape(0)), d = Size(rows.shape(1));
        const auto found = unlocked(1, [&](const Threads&) {
            return Directions::leading(rows.data(), n, d, std::min(count, n));
        });
        return to_numpy(found, {found.size() / std::size_t(d), std::size_t(d)});
    });
    m.def("row_at", &row_at_place, nb::arg("place"), nb::arg("n"), nb::arg("weights").none(),
          nb::arg("total"));
    nb::class_<SeedPoints>(m, "SeedPoints")
        .def(nb::init<Size, int, bool, bool>())
        .def_prop_ro("seeds", &SeedPoints::seeds)
        .def("unstage", &SeedPoints::unstage)
        .def("stage", &stage)
        .def("stage_point",
             [](SeedPoints& points, const Array<const double, 1>& values) {
                 require(Size(values.shape(0)) == points.d(), "the point has another width");
                 points.stage_point(values.data());
             })
        .def("accept", &SeedPoints::accept)
        .def("retract", &SeedPoints::retract);
    nb::class_<SeedBlock>(m, "SeedBlock")
        .def_static("make", &seed_block<false>, nb::keep_alive<0, 1>())
        .def_static("streamed", &seed_block<true>)
        .def("attach",
             [](SeedBlock& block, const Block& rows) {
                 require(row_count(rows.rows) == block.n(), "the block has another size");
                 block.attach(rows.rows);
             })
        .def("detach", &SeedBlock::detach)
        .def("can_accept_detached", &SeedBlock::can_accept_detached)
        .def("project", &project)
        .def("largest", &SeedBlock::largest)
        .def("farthest", &SeedBlock::farthest)
        .def("sample_bernoulli", &SeedBlock::bernoulli_sample)
        .def("set_unit2", &SeedBlock::set_unit2)
        .def("lay_grid",
             [](SeedBlock& block, double bound, Size n, int n_jobs) {
                 return unlocked(n_jobs, [&](const Threads& threads) {
                     return weight_bins(block.lay_grid(bound, n, threads));
                 });
             })
        .def_prop_ro("total", [](const SeedBlock& block) { return weight_bins(block.total()); })
        .def("find", &find)
        .def("potentials", &totals_left)
        .def("greedy", &greedy, nb::arg("points"), nb::arg("rows"), nb::arg("shares"),
             nb::arg("enough"), nb::arg("n_jobs"))
        .def("accept",
             [](SeedBlock& block, SeedPoints& points, Size s, int n_jobs) {
                 if (!block.can_accept_detached(s)) must_be_attached(block);
                 unlocked(n_jobs,
                          [&](const Threads& threads) { block.accept(points, s, threads); });
             })
        .def("add",
             [](SeedBlock& block, SeedPoints& points, int n_jobs) {
                 must_be_attached(block);
                 unlocked(n_jobs,
                          [&](const Threads& threads) { block.accept_all(points, threads); });
             })
        .def_prop_ro("distances", &SeedBlock::distances)
        .def("sampling_weight", &SeedBlock::sampling_weight)
        .def("refresh",
             [](SeedBlock& block, SeedPoints& points, Size i) {
                 must_be_attached(block);
                 return block.refresh(points, i);
             })
        .def_prop_ro(
            "nearest_seed",
            [](const SeedBlock& block) { return to_numpy(block.own(), {block.own().size()}); })
        .def_prop_ro(
            "d2", [](const SeedBlock& block) { return to_numpy(block.d2(), {block.d2().size()}); });
}

}  // namespace exactmeans
