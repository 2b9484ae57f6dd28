#!/bin/bash
# The wheel: built, put into an index of this machine, installed from there by pip into a fresh virtual environment, and used.
# To publish: `twine upload` of what is then in $CPUSLAB_PACKAGES/wheels.
. "$(dirname "$0")/roots.sh"
needs python3 cmake objdump strip

copied "$work/tree"
python3 -m venv "$work/builder"
"$work/builder/bin/pip" install -q build setuptools wheel auditwheel 2>"$work/log" || skip "no index: $(tail -n 1 "$work/log")"
rm -rf "$folder/wheels"
CPUSLAB_SOURCES=$work/tree quietly "$work/builder/bin/python" -m build --no-isolation --wheel --outdir "$folder/wheels" "$work/tree/bindings/python"
wheel=$(basename "$folder"/wheels/*.whl)
# What it is called is what auditwheel finds that it needs.
"$work/builder/bin/auditwheel" show "$folder/wheels/$wheel" >"$work/log" 2>&1 || fail "auditwheel: $(cat "$work/log")"
tag=$(grep -oE '"(many|musl)linux_[0-9_]+_[a-z0-9_]+"' "$work/log" | head -n 1 | tr -d '"')
[[ $wheel = cpuslab-*-py3-none-$tag.whl ]] || fail "$wheel, and auditwheel says $tag"
echo "wheel: $wheel, $(stat -c %s "$folder/wheels/$wheel") bytes"

# An index as the public one is: a page for each project.
mkdir -p "$work/index/simple/cpuslab"
cp "$folder/wheels/$wheel" "$work/index/simple/cpuslab/"
echo "<!DOCTYPE html><a href=\"$wheel\">$wheel</a>" >"$work/index/simple/cpuslab/index.html"
python3 -m http.server --bind 127.0.0.1 --directory "$work/index" 0 >"$work/server" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 100); do
	port=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$work/server")
	[ -z "$port" ] || break
	sleep 0.1
done
python3 -m venv "$work/user"
quietly env -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null "$work/user/bin/pip" install -q \
	--index-url "http://127.0.0.1:$port/simple/" cpuslab
cd "$work/tree/bindings/python/tests"
for way in '' 'run' 'run --all' 'run vcpu:slot'; do
	# shellcheck disable=SC2086
	quietly "$work/user/bin/python" ${way:+-m cpuslab} $way test_cpuslab.py
	echo "tests, ${way:-another malloc}: $(sed -n 's/^Ran /ran /p' "$work/log")"
done
cat >"$work/app.py" <<'PYTHON'
import concurrent.futures, json, sys, threading, urllib.request, wsgiref.simple_server
import cpuslab

def app(environment, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"active": cpuslab.active(), "echo": ["x" * i for i in range(200)]}).encode()]

class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *arguments):
        pass

server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    answers = list(pool.map(lambda _: json.load(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/")), range(200)))
assert all(answer["active"] for answer in answers)
print("a server with", len(answers), "requests:", cpuslab.version())
PYTHON
"$work/user/bin/python" -m cpuslab run "$work/app.py" || fail 'a server'
"$work/user/bin/python" -m cpuslab run -- ls / >/dev/null || fail 'another program'
if "$work/user/bin/pip" install -q pandas gunicorn 2>"$work/log"; then
	"$work/user/bin/python" -m cpuslab run -c 'import cpuslab, pandas
frame = pandas.DataFrame({"a": range(200000), "b": [str(i % 97) for i in range(200000)]})
assert frame.groupby("b").a.sum().sum() == 19999900000 and cpuslab.active()
print("pandas", pandas.__version__)' || fail pandas
fi
