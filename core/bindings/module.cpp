#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "exactmeans/kernels.hpp"

NB_MODULE(_core, m) {
    using namespace exactmeans;
    m.def("usable_cores", &usable_cores);
    m.def("usable_isas", &usable_isas);
    m.def("active_isa", &active_isa);
    bind_rows(m);
    bind_update(m);
    bind_assign(m);
    bind_seed(m);
}
