#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/base/checksum.hpp"
#include "exactmeans/base/parallel.hpp"
#include "exactmeans/kernels/dispatch.hpp"

NB_MODULE(_core, m) {
    using namespace exactmeans;
    // Otherwise nanobind would report objects that exist when a process ends, and the logs of
    // killed workers of a cluster would fill with these reports.
    nb::set_leak_warnings(false);
    m.def("usable_cores", &usable_cores);
    m.attr("max_jobs") = max_jobs;
    m.def("usable_isas", &usable_isas);
    m.def("active_isa", &active_isa);
    m.def(
        "checksum",
        [](const Array<const std::uint8_t, 1>& bytes, int n_jobs) {
            return unlocked(n_jobs, [&](const Threads& threads) {
                return checksum(bytes.data(), std::ptrdiff_t(bytes.size()), threads);
            });
        },
        nb::arg("bytes"), nb::arg("n_jobs"));
    bind_cost_model(m);
    bind_rows(m);
    bind_update(m);
    bind_assign(m);
    bind_seed(m);
    bind_tree(m);
    bind_limits(m);
}
