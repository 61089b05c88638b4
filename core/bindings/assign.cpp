#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings.hpp"
#include "exactmeans/assign/registry.hpp"

namespace exactmeans {
namespace {

using PackedColumns = std::optional<Array<const std::uint32_t, 1>>;

template <class R>
AnyCentres with_packed_columns(Centres<R> centres, const PackedColumns& packed_columns) {
    const Size d = centres.d();
    require(!packed_columns || Size(packed_columns->shape(0)) == d,
            "there must be one packed column per feature");
    for (Size f = 0; packed_columns && f < d; ++f)
        require(Size(packed_columns->data()[f]) < d, "a packed column is out of range");
    auto shared = std::make_unique<SharedCentres<R>>(std::move(centres));
    if (packed_columns)
        shared->layouts.set_packed_columns(
            std::vector<std::uint32_t>(packed_columns->data(), packed_columns->data() + d));
    return AnyCentres{std::move(shared)};
}

template <class R>
AnyCentres make_centroids(const Array<const R, 2>& centres,
                          const std::optional<Array<const R, 1>>& shift, int exponent,
                          const PackedColumns& packed_columns, int n_jobs,
                          const std::string& metric, int packing) {
    const Size k = Size(centres.shape(0)), d = Size(centres.shape(1));
    require(k > 0, "there must be at least one centre");
    Frame<R> frame{exponent, {}, metric_of(metric), packing};
    if (shift) {
        require(Size(shift->shape(0)) == d, "shift and centres differ in width");
        frame.shift.assign(shift->data(), shift->data() + d);
    }
    return with_packed_columns(unlocked(n_jobs,
                                        [&](const Threads& threads) {
                                            return Centres<R>(centres.data(), k, d,
                                                              std::move(frame), threads);
                                        }),
                               packed_columns);
}

AnyCentres make_sparse_centroids(const SparseCentres& centres, const nb::object& shift,
                                 int exponent, const PackedColumns& packed_columns, int n_jobs,
                                 const std::string& metric, int packing) {
    require(centres.k() > 0, "there must be at least one centre");
    require(shift.is_none(), "sparse centres have no shift");
    return std::visit(
        [&]<class R>(const std::vector<SparseVector<R>>& of) {
            return with_packed_columns(
                unlocked(n_jobs,
                         [&](const Threads& threads) {
                             Frame<R> frame{exponent, {}, metric_of(metric), packing};
                             return Centres<R>(of, centres.d, std::move(frame), threads);
                         }),
                packed_columns);
        },
        centres.of);
}

template <class R>
Movement move(AnyCentres& any, const Array<const R, 2>& centres, int n_jobs) {
    auto* shared = any.shared<R>();
    require(shared && !shared->centres.sparse(), "centres must keep their dtype and form");
    Centres<R>& own = shared->centres;
    require(Size(centres.shape(0)) == own.k() && Size(centres.shape(1)) == own.d(),
            "centres must keep their shape");
    return unlocked(n_jobs,
                    [&](const Threads& threads) { return own.move(centres.data(), threads); });
}

Movement move_sparse(AnyCentres& any, const SparseCentres& centres, int n_jobs) {
    return std::visit(
        [&]<class R>(const std::vector<SparseVector<R>>& of) {
            auto* shared = any.shared<R>();
            require(shared && shared->centres.sparse(), "centres must keep their dtype and form");
            Centres<R>& own = shared->centres;
            require(centres.k() == own.k() && centres.d == own.d(),
                    "centres must keep their shape");
            return unlocked(n_jobs, [&](const Threads& threads) { return own.move(of, threads); });
        },
        centres.of);
}

void set_norms(AnyCentres& any, const Array<const double, 1>& norms2, Size terms) {
    any.visit([&](auto& centroids) {
        require(Size(norms2.shape(0)) == centroids.k(), "there must be one norm per centre");
        centroids.set_norms(norms2.data(), terms);
    });
}

// The arguments of the last set_norms, or None if the centres have moved since.
nb::object given_norms2(AnyCentres& any) {
    return any.visit([](auto& c) -> nb::object {
        if (!c.norms_given()) return nb::none();
        std::vector<double> norms2;
        for (Size j = 0; j < c.k(); ++j) norms2.push_back(2.0 * double(c.score_offset()[j]));
        return nb::make_tuple(to_numpy(norms2, {norms2.size()}), c.norm_terms());
    });
}

// A dense array, or the values, indices and offsets of a CSR matrix.
nb::object centres_of(AnyCentres& any) {
    return any.visit([](auto& c) -> nb::object {
        using R = std::decay_t<decltype(*c.master())>;
        if (!c.sparse()) {
            const std::vector<R> values(c.master(), c.master() + c.k() * c.d());
            return to_numpy(values, {std::size_t(c.k()), std::size_t(c.d())});
        }
        CsrArrays<R> rows;
        for (const SparseVector<R>& centre : c.sparse_master()) rows.add(centre);
        return rows.numpy();
    });
}

// The state of an algorithm for the rows of a block, in one dtype.
template <class R>
struct AssignerState {
    RowState<R> rows{};
    std::unique_ptr<Assigner<R>> assigner{};

    void use(const std::string& name, Size n, Size k) {
        assigner.reset();  // frees its bounds before the next ones are allocated
        assigner = make_assigner<R>(name, n, k, rows);
    }
};

struct AnyAssigner {
    std::variant<AssignerState<float>, AssignerState<double>> of;
    Size n, k;
    Size without_score = 0;  // AssignStats::without_score of the last pass

    AnyAssigner(const std::string& name, bool single, Size rows, Size centres)
        : n(rows), k(centres) {
        if (!single) of = AssignerState<double>{};
        use(name);
    }
    // Whether 8-bit codes of all rows may be stored (filter/dense_codes.hpp).
    void set_store_codes(bool may) {
        std::visit([&](auto& state) { state.rows.codes->set_may_store(may); }, of);
    }
    void use(const std::string& name) {
        std::visit([&](auto& state) { state.use(name, n, k); }, of);
    }
};

// The cost of a pass over n rows like these with the 8-bit filter, as a share of one without it.
double filtered_cost(const Block& block, Size n, AnyCentres& any, int n_jobs) {
    return std::visit(
        [&]<class Rows>(const Rows& x) {
            if constexpr (is_dense<Rows>) {
                using R = typename Rows::Real;
                auto* shared = any.shared<R>();
                require(shared && shared->centres.d() == x.d,
                        "centres and rows differ in width or dtype");
                return unlocked(n_jobs, [&](const Threads& threads) {
                    DenseFilterPass<R> pass;
                    return pass.expected_cost(x, n, shared->centres, threads);
                });
            } else {
                return 1.0;
            }
        },
        block.rows);
}

// Bytes of the 8-bit codes of n dense rows; 0 if storing them does not pay in a fit of so many
// passes.
Size code_bytes(bool single, Size n, Size k, Size d, Size passes) {
    const bool pays = single ? DenseFilterPass<float>::may_pay_in_fit(n, d, k, passes)
                             : DenseFilterPass<double>::may_pay_in_fit(n, d, k, passes);
    return pays ? n * DenseCodes<float>::bytes_per_row(d) : 0;
}

// The first pass of an algorithm with bounds by the 8-bit filter, as a share of a plain pass
// without it; 1: the filter is not used.
double filtered_bounds_cost(bool single, Size d, Size k) {
    return single ? DenseBoundsPass<float>::least_share(d, k, false)
                  : DenseBoundsPass<double>::least_share(d, k, false);
}

Size bytes_per_row(const std::string& name, bool single, bool dense, Size k, Size d) {
    return single ? find_algorithm<float>(name).bytes_per_row(k, d, dense)
                  : find_algorithm<double>(name).bytes_per_row(k, d, dense);
}

template <class R>
AssignStats assign_with(Assigner<R>& assigner, const Block& block, AnyCentres& any,
                        const Labels& labels, int n_jobs) {
    auto* shared = any.shared<R>();
    require(shared, "the assigner and the centres must have the same dtype");
    require(column_count(block.rows) == shared->centres.d(), "centres and rows differ in width");
    return unlocked(n_jobs, [&](const Threads& threads) {
        return assigner.assign(block.rows, *shared, labels.data(), threads);
    });
}

// Returns the members of AssignStats, in their order, without `without_score`.
std::tuple<Size, Size, Size, Size, Size, Size> assign(AnyAssigner& any, const Block& block,
                                                      AnyCentres& centroids, const Labels& labels,
                                                      int n_jobs) {
    require(row_count(block.rows) == any.n && Size(labels.shape(0)) == any.n,
            "the block has another length");
    const AssignStats stats = std::visit(
        [&](auto& state) { return assign_with(*state.assigner, block, centroids, labels, n_jobs); },
        any.of);
    any.without_score = stats.without_score;
    return {stats.changed,  stats.distances, stats.skipped,
            stats.filtered, stats.decided,   stats.verified};
}

bool labels_certain(AnyAssigner& any, AnyCentres& centroids, const Labels& labels, int n_jobs) {
    require(Size(labels.shape(0)) == any.n, "the block has another length");
    return std::visit(
        [&]<class R>(AssignerState<R>& state) {
            auto* shared = centroids.shared<R>();
            require(shared && shared->centres.k() == any.k,
                    "the assigner and the centres must have the same dtype and number");
            return unlocked(n_jobs, [&](const Threads& threads) {
                return state.assigner->labels_certain(*shared, labels.data(), threads);
            });
        },
        any.of);
}

nb::list algorithms() {
    nb::list out;
    for (const auto& entry : registry<double>) {
        nb::dict traits;
        traits["name"] = entry.traits.name;
        traits["summary"] = entry.traits.summary;
        traits["dense"] = entry.traits.dense;
        traits["csr"] = entry.traits.csr;
        traits["metrics"] = entry.traits.metrics;
        out.append(traits);
    }
    return out;
}

}  // namespace

void bind_assign(nb::module_& m) {
    nb::class_<Movement>(m, "Movement")
        .def_ro("moved", &Movement::moved)
        .def_ro("shift2", &Movement::shift2)
        .def_prop_ro("distance",
                     [](const Movement& v) { return to_numpy(v.distance, {v.distance.size()}); });

    nb::class_<AnyCentres>(m, "Centroids")
        .def_static("make", &make_centroids<float>, nb::arg("centres"), nb::arg("shift").none(),
                    nb::arg("exponent"), nb::arg("packed_columns").none(), nb::arg("n_jobs"),
                    nb::arg("metric") = "euclidean", nb::arg("packing") = 0)
        .def_static("make", &make_centroids<double>, nb::arg("centres"), nb::arg("shift").none(),
                    nb::arg("exponent"), nb::arg("packed_columns").none(), nb::arg("n_jobs"),
                    nb::arg("metric") = "euclidean", nb::arg("packing") = 0)
        .def_static("make", &make_sparse_centroids, nb::arg("centres"), nb::arg("shift").none(),
                    nb::arg("exponent"), nb::arg("packed_columns").none(), nb::arg("n_jobs"),
                    nb::arg("metric") = "euclidean", nb::arg("packing") = 0)
        .def("move", &move<float>)
        .def("move", &move<double>)
        .def("move", &move_sparse)
        .def("set_norms", &set_norms, nb::arg("norms2"), nb::arg("terms"),
             nb::call_guard<FloatEnvironment>())
        .def("set_rare_below",
             [](AnyCentres& any, Size centres) {
                 any.visit_shared([&](auto& shared) { shared.layouts.set_rare_below(centres); });
             })
        .def("set_scratch_limit",
             [](AnyCentres& any, Size bytes) {
                 any.visit_shared([&](auto& shared) { shared.layouts.set_scratch_limit(bytes); });
             })
        .def("has_posting_lists",
             [](AnyCentres& any) {
                 // Without the GIL, because a thread that holds the lock of the layouts may wait
                 // for the GIL.
                 return unlocked(1, [&](const Threads& threads) {
                     return any.visit_shared([&](auto& shared) {
                         return shared.layouts.panels(shared.centres, false, threads).postings !=
                                nullptr;
                     });
                 });
             })
        .def("fits_filter",
             [](AnyCentres& any) {
                 return any.visit_shared([]<class R>(SharedCentres<R>& shared) {
                     return QuantizedCentres<R>::fits(shared.centres, shared.layouts.settings());
                 });
             })
        .def_prop_ro("centres", &centres_of)
        .def_prop_ro("given_norms2", &given_norms2);

    nb::class_<AnyAssigner>(m, "Assigner")
        .def("__init__", [](AnyAssigner* self, const std::string& name, bool single, Size n,
                            Size k) { new (self) AnyAssigner(name, single, n, k); })
        .def("use", &AnyAssigner::use)
        .def("set_store_codes", &AnyAssigner::set_store_codes)
        .def("assign", &assign, nb::arg("rows"), nb::arg("centroids"), nb::arg("labels"),
             nb::arg("n_jobs"))
        .def_ro("rows_without_score", &AnyAssigner::without_score)
        .def("labels_certain", &labels_certain, nb::arg("centroids"), nb::arg("labels"),
             nb::arg("n_jobs"))
        .def("moved", [](AnyAssigner& any, const Movement& movement) {
            std::visit([&](auto& state) { state.assigner->moved(movement); }, any.of);
        });

    m.def("algorithms", &algorithms);
    m.def("filtered_cost", &filtered_cost, nb::arg("rows"), nb::arg("n"), nb::arg("centroids"),
          nb::arg("n_jobs"));
    m.def("code_bytes", &code_bytes, nb::arg("single"), nb::arg("n"), nb::arg("k"), nb::arg("d"),
          nb::arg("passes"));
    m.def("filtered_bounds_cost", &filtered_bounds_cost, nb::arg("single"), nb::arg("d"),
          nb::arg("k"));
    m.def("bytes_per_row", &bytes_per_row, nb::arg("algorithm"), nb::arg("single"),
          nb::arg("dense"), nb::arg("k"), nb::arg("d"));
}

}  // namespace exactmeans
