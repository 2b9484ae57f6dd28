#!/bin/bash
# The site of the documents: built, its links checked, its first page opened in a browser without a screen.
. "$(dirname "$0")/roots.sh"
needs python3 git
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q mkdocs-material 2>"$work/log" || skip "no index: $(tail -n 1 "$work/log")"
cp -r "$source/." "$work/tree" 2>/dev/null || copied "$work/tree"
cd "$work/tree"
MKDOCS=$work/venv/bin/mkdocs quietly scripts/site
site=$work/tree/build-site/site
# Each relative link of each page leads to a file.
python3 - "$site" <<'PYTHON' || fail 'links'
import html.parser, os, pathlib, sys, urllib.parse

class Links(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ('href', 'src') and value:
                found.append(value)

site, broken, count = pathlib.Path(sys.argv[1]), [], 0
for page in site.rglob('*.html'):
    if page.name == '404.html':
        continue
    found = []
    Links().feed(page.read_text())
    for link in found:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc or not parts.path:
            continue
        count += 1
        target = (page.parent / urllib.parse.unquote(parts.path)).resolve()
        if not target.exists():
            broken.append(f'{page.relative_to(site)}: {link}')
print(f'{count} links, {len(broken)} broken', *broken[:20], sep='\n')
sys.exit(bool(broken))
PYTHON
if command -v chromium >/dev/null; then
	timeout -s KILL 60 chromium --headless --no-sandbox --disable-gpu --dump-dom "file://$site/index.html" >"$work/page" 2>/dev/null || true
	grep -q '<h1[^>]*>cpuslab' "$work/page" || fail 'the browser shows no first page'
	echo 'opened in a browser'
fi
