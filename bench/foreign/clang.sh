# a C++ compiler, with templates
# needs: clang++
# run: clang++ -std=c++17 -O1 -S -o - work.cc
cat >work.cc <<'END'
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
template <int N> struct item { std::map<int, std::string> names; int value[N]; };
template <int N> int use(std::vector<item<N>> &all)
{
	std::sort(all.begin(), all.end(), [](const item<N> &a, const item<N> &b) { return a.value[0] < b.value[0]; });
	std::function<int(int)> f = [&](int i) { return all[i].value[N - 1] + N; };
	return f(0) + (N > 1 ? use<(N > 1 ? N - 1 : 1)>(*new std::vector<item<(N > 1 ? N - 1 : 1)>>) : 0);
}
template <> int use<1>(std::vector<item<1>> &all) { return all.size(); }
int start(std::vector<item<12>> &all) { return use<12>(all); }
END
