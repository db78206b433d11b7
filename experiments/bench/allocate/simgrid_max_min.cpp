// Solves a max-min problem with SimGrid's solver and tells how long that took: a yardstick for the project's own.
//
// The solver's class is in libsimgrid but not in its installed headers, so what is used of it is declared here (3.32).
// Usage: simgrid_max_min PROBLEM RATES REPEATS. PROBLEM holds int64 flows, constraints, uses; int64 offsets[flows + 1],
// uses[uses]; double capacity[constraints], demand[flows], weight[flows]. RATES gets double rate[flows].
// Prints the milliseconds of each solve().
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace simgrid::kernel {
namespace resource {
class Resource;
class Action;
} // namespace resource
namespace lmm {
class Constraint;
class Variable;
class System {
public:
    static System *build(std::string_view solver, bool selective_update);
    Constraint *constraint_new(resource::Resource *id, double bound);
    Variable *variable_new(resource::Action *id, double sharing_penalty, double bound, size_t constraints);
    void expand(Constraint *constraint, Variable *variable, double weight, bool force);
    void solve();
};
} // namespace lmm
} // namespace simgrid::kernel

using namespace simgrid::kernel::lmm;

// Where a variable keeps its value: found by solving 123.5 = x + y with y at most 23.25.
static size_t value_index()
{
    System *system = System::build("maxmin", false);
    Constraint *constraint = system->constraint_new(nullptr, 123.5);
    Variable *x = system->variable_new(nullptr, 1.0, -1.0, 1), *y = system->variable_new(nullptr, 1.0, 23.25, 1);
    system->expand(constraint, x, 1.0, false);
    system->expand(constraint, y, 1.0, false);
    system->solve();
    for (size_t i = 0; i < 24; i++)
        if (reinterpret_cast<double *>(x)[i] == 100.25 && reinterpret_cast<double *>(y)[i] == 23.25)
            return i;
    return 0;
}

template <typename T> static std::vector<T> read_column(FILE *file, size_t rows)
{
    std::vector<T> column(rows);
    if (std::fread(column.data(), sizeof(T), rows, file) != rows)
        column.clear();
    return column;
}

int main(int, char **argv)
{
    size_t value = value_index();
    FILE *file = std::fopen(argv[1], "rb");
    if (!value || !file)
        return 2;
    auto sizes = read_column<int64_t>(file, 3);
    auto offsets = read_column<int64_t>(file, sizes[0] + 1), uses = read_column<int64_t>(file, sizes[2]);
    auto capacity = read_column<double>(file, sizes[1]), demand = read_column<double>(file, sizes[0]);
    auto weight = read_column<double>(file, sizes[0]);
    std::fclose(file);
    std::vector<double> rate(sizes[0]);
    for (int repeat = 0; repeat < std::atoi(argv[3]); repeat++) {
        System *system = System::build("maxmin", false);
        std::vector<Constraint *> constraints;
        for (double bound : capacity)
            constraints.push_back(system->constraint_new(nullptr, bound));
        std::vector<Variable *> variables;
        for (int64_t flow = 0; flow < sizes[0]; flow++) {
            double bound = std::isinf(demand[flow]) ? -1.0 : demand[flow];
            variables.push_back(system->variable_new(nullptr, 1.0 / weight[flow], bound, offsets[flow + 1] - offsets[flow]));
            for (int64_t use = offsets[flow]; use < offsets[flow + 1]; use++)
                system->expand(constraints[uses[use]], variables[flow], 1.0, false);
        }
        auto start = std::chrono::steady_clock::now();
        system->solve();
        std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        std::printf("%.3f\n", took.count());
        for (int64_t flow = 0; flow < sizes[0]; flow++)
            rate[flow] = reinterpret_cast<double *>(variables[flow])[value];
    }
    file = std::fopen(argv[2], "wb");
    std::fwrite(rate.data(), sizeof(double), rate.size(), file);
    std::fclose(file);
}
