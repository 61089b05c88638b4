#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/seed/plusplus.hpp"

namespace exactmeans {
namespace {

// Candidates as given by Python, with their norms added up in the order that seed_norm2 uses.
struct Seeds {
    std::vector<double> values, norms2;
    Candidates view;

    Seeds(const Block& block, const Array<const double, 2>& given, int exponent) {
        const Size count = Size(given.shape(0)), d = Size(given.shape(1));
        const double scale = std::ldexp(1.0, exponent);
        require(d == column_count(block.rows), "candidates and rows differ in width");
        values.assign(given.data(), given.data() + count * d);
        for (double& value : values) value *= scale;
        for (Size s = 0; s < count; ++s) {
            double sum = 0;
            for (Size f = 0; f < d; ++f)
                sum += values[std::size_t(s * d + f)] * values[std::size_t(s * d + f)];
            norms2.push_back(sum);
        }
        view = {values.data(), count, norms2.data(), scale};
    }
};

std::vector<ExactSum> potentials(const ClosestSeed& closest, const Block& block,
                                 const Array<const double, 2>& candidates, int exponent,
                                 int n_jobs) {
    require(row_count(block.rows) == Size(closest.d2().size()), "the block has another length");
    const Seeds seeds(block, candidates, exponent);
    return unlocked(n_jobs, [&](const Threads& threads) {
        return std::visit([&](const auto& x) { return closest.potentials(x, seeds.view, threads); },
                          block.rows);
    });
}

void accept(ClosestSeed& closest, const Block& block, const Array<const double, 2>& seed,
            int exponent, int n_jobs) {
    require(row_count(block.rows) == Size(closest.d2().size()), "the block has another length");
    require(seed.shape(0) == 1, "one seed at a time");
    const Seeds seeds(block, seed, exponent);
    unlocked(n_jobs, [&](const Threads& threads) {
        std::visit([&](const auto& x) { closest.accept(x, seeds.view, threads); }, block.rows);
    });
}

}  // namespace

void bind_seed(nb::module_& m) {
    nb::class_<ClosestSeed>(m, "ClosestSeed")
        .def(nb::init<Size>())
        .def("potentials", &potentials)
        .def("accept", &accept)
        .def_prop_ro("d2", [](const ClosestSeed& c) { return to_numpy(c.d2(), {c.d2().size()}); });
}

}  // namespace exactmeans
