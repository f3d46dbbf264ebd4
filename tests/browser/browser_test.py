#!/usr/bin/env python3
"""HTML reports in headless Chromium: nothing leaves the page, nothing complains, everything can be read.

usage: browser_test.py SOURCE_ROOT BINARY FOLDER

Each page is opened in light and dark, wide (1200) and narrow (420), and printed. Checked: the browser's console is empty; no
address but the page's own is asked for; no script is in it; every text is at least 9 px high on the screen (on the narrow one
those of drawings are not: they shrink with them, until they are touched) and differs enough from what lies behind it (contrast
4.5 to 1 [WCAG21] 1.4.3; 3 to 1 for text of 24 px and headings); the page is no wider than the window, and nothing in it is wider
than its place; drawings have a size; what is printed is neither empty nor without end. Screenshots and printed pages stay in
FOLDER, to be looked at. Exit 77: skipped.
"""
import base64
import json
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import started

PAGES = {
    "simulate": (["simulate", "scenarios/quickstart.yaml"], 0),
    "simulate-replicas": (["simulate", "scenarios/pipedream/replicated-2-1-1.yaml"], 0),
    "simulate-large": (["simulate", "scenarios/what_if/k64-m1024.yaml"], 0),
    "plan": (["plan", "scenarios/megatron/llama3-70b-64xh100.yaml", "--top", "5", "--pareto", "memory,cost"], 0),
    "sweep": (["sweep", "scenarios/what_if/bandwidth.yaml"], 0),
    "simulate-training": (["simulate", "scenarios/what_if/llama3-70b.yaml", "--tokens", "1T", "--price", "3", "--mtbf", "50000 h",
                           "--checkpoint", "60s", "--restart", "10min"], 0),
    "reproduce": (["reproduce", "gpipe-table1"], 0),
    "validate": (["validate", "scenarios/validation/two-stage-gpipe.yaml", "--force"], None),
    "compare": (["compare", "scenarios/what_if/hops-1f1b.yaml", "scenarios/what_if/hops-gpipe.yaml"], 0),
}
NARROW = 640  # below it pages have the style for narrow screens (io/writers/html_page.cpp)
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
           "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
           "--disable-dev-shm-usage", "--disable-default-apps", "--allow-file-access-from-files"]

# Runs in the page. Text nodes with their size on the screen, colour, and the colour behind them: of the SVG shapes painted
# before them that lie under their middle, or of the nearest ancestor with a background.
READ_TEXT = r"""
const parse = c => { const m = c.match(/rgba?\(([^)]+)\)/); if (!m) return null;
  const v = m[1].split(/[ ,\/]+/).map(Number); return [v[0], v[1], v[2], v.length > 3 ? v[3] : 1]; };
const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const base = () => parse(getComputedStyle(document.body).backgroundColor);
const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  if (!node.textContent.trim()) continue;
  const element = node.parentElement, tag = element.tagName.toLowerCase();
  if (['style', 'script', 'title', 'desc'].includes(tag)) continue;
  const closed = element.closest('details:not([open])');
  if (closed && !element.closest('summary')) continue;
  const range = document.createRange(); range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (box.width === 0 || box.height === 0) continue;
  const style = getComputedStyle(element), svg = element.closest('svg');
  let size = parseFloat(style.fontSize), colour = parse(style.color), behind = base();
  if (svg) {
    const matrix = element.getScreenCTM();
    size *= Math.hypot(matrix.c, matrix.d);
    colour = parse(style.fill);
    const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
    const chain = []; for (let e = svg; e; e = e.parentElement) chain.unshift(e);
    for (const e of chain) { const c = parse(getComputedStyle(e).backgroundColor); if (c && c[3] > 0) behind = over(c, behind); }
    for (const shape of svg.querySelectorAll('rect, circle')) {
      if (shape.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_PRECEDING) continue;
      const r = shape.getBoundingClientRect();
      if (x < r.left || x > r.right || y < r.top || y > r.bottom) continue;
      const s = getComputedStyle(shape), c = parse(s.fill);
      if (c) { c[3] *= parseFloat(s.fillOpacity) * parseFloat(s.opacity); behind = over(c, behind); }
    }
  } else {
    const chain = []; for (let e = element; e; e = e.parentElement) chain.unshift(e);
    for (const e of chain) { const c = parse(getComputedStyle(e).backgroundColor); if (c && c[3] > 0) behind = over(c, behind); }
  }
  if (!colour) continue;
  texts.push({text: node.textContent.trim().slice(0, 60), drawn: svg !== null, size, colour: over(colour, behind), behind,
              large: size >= 24 || /^h[12]$/.test(tag)});
}
const drawings = [...document.querySelectorAll('svg')].filter(s => !s.closest('details:not([open])'))
  .map(s => s.getBoundingClientRect()).map(r => [r.width, r.height]);
const clipped = [...document.querySelectorAll('.wide, .drawing, .figure, .facts, pre')]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => [e.className || e.tagName, e.scrollWidth, e.clientWidth]);
return {texts, drawings, clipped, width: document.documentElement.scrollWidth, window: window.innerWidth,
        scripts: document.scripts.length, title: document.title};
"""


def luminance(colour):
    """Relative luminance of an sRGB colour [WCAG21]."""
    def linear(c):
        c /= 255
        return c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
    return sum(w * linear(c) for w, c in zip((0.2126, 0.7152, 0.0722), colour))


def contrast(a, b):
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def written(root, binary, folder):
    """The pages, as files: {name: path}."""
    pages = {}
    for name, (arguments, status) in PAGES.items():
        page = folder / f"{name}.html"
        run = started.run([binary, *arguments, "-o", page], cwd=root, capture_output=True, text=True)
        if status is not None and run.returncode != status:
            sys.exit(f"{name}: exit {run.returncode}\n{run.stderr}")
        if not page.is_file():
            sys.exit(f"{name}: no page was written\n{run.stdout}\n{run.stderr}")
        pages[name] = page
    return pages


def faults_of(driver, name, page, look, width):
    """What is wrong with one page as it is shown."""
    driver.get_log("browser"), driver.get_log("performance")
    driver.get(page.as_uri())
    found = driver.execute_script(READ_TEXT)
    where = f"{name}, {look}, {width} px"
    faults = [f"{where}: console: {entry['message']}" for entry in driver.get_log("browser")]
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            address = message["params"]["request"]["url"]
            if address != page.as_uri() and not address.startswith("data:"):
                faults.append(f"{where}: asks for {address}")
    if found["scripts"]:
        faults.append(f"{where}: {found['scripts']} scripts")
    if not found["title"] or len(found["texts"]) < 20:
        faults.append(f"{where}: {len(found['texts'])} texts, title \"{found['title']}\"")
    if found["width"] > found["window"] + 1:
        faults.append(f"{where}: {found['width']} px wide in a window of {found['window']} px")
    faults += [f"{where}: a drawing of {w:.0f} x {h:.0f} px" for w, h in found["drawings"] if w < 50 or h < 10]
    faults += [f"{where}: \"{what}\" is {inside} px wide in {place} px" for what, inside, place in found["clipped"]]
    small, faint = {}, {}
    for text in found["texts"]:
        if text["size"] < 9 and not (text["drawn"] and width < NARROW):
            small.setdefault(round(text["size"], 1), []).append(text["text"])
        ratio = contrast(text["colour"], text["behind"])
        if ratio < (3 if text["large"] else 4.5):
            faint.setdefault((tuple(map(round, text["colour"][:3])), tuple(map(round, text["behind"][:3]))), []).append(
                (ratio, text["text"]))
    faults += [f"{where}: {len(texts)} texts of {size} px, such as \"{texts[0]}\"" for size, texts in sorted(small.items())]
    faults += [f"{where}: {len(texts)} texts rgb{colour} on rgb{behind}, contrast {texts[0][0]:.2f}, such as \"{texts[0][1]}\""
               for (colour, behind), texts in sorted(faint.items())]
    return faults


def main():
    root, binary, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    if os.environ.get("PIPEWRIGHT_BROWSER") != "1":
        skip("PIPEWRIGHT_BROWSER=1 asks for it")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        skip("python3-selenium is not installed")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        skip("chromium or chromedriver (chromium-driver) is not installed")

    folder.mkdir(parents=True, exist_ok=True)
    pages, faults, shown = written(root, binary, folder), [], 0
    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for option in [*OPTIONS, f"--user-data-dir={profile}"]:
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(service=Service(chromedriver), options=options)
        try:
            for look in ("light", "dark"):
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                       {"features": [{"name": "prefers-color-scheme", "value": look}]})
                for width in (1200, 420):
                    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                           {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
                    for name, page in pages.items():
                        faults += faults_of(driver, name, page, look, width)
                        shown += 1
                        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
                        (folder / f"{name}-{look}-{width}.png").write_bytes(base64.b64decode(shot["data"]))
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
            for name, page in pages.items():
                driver.get(page.as_uri())
                printed = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
                (folder / f"{name}.pdf").write_bytes(printed)
                sheets = printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ")
                if not 1 <= sheets <= 30:
                    faults.append(f"{name}: {sheets} printed pages")
        finally:
            driver.quit()
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages, shown {shown} times, {len(faults)} faults; screenshots in {folder}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
