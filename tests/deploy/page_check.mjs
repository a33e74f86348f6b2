// Opens a page in Chromium and says what a reader would meet, as JSON.
// node page_check.mjs PLAYWRIGHT CHROMIUM PAGE
import { pathToFileURL } from "node:url";

const [playwright, executablePath, file] = process.argv.slice(2);
const { chromium } = await import(pathToFileURL(playwright));
const browser = await chromium.launch({ executablePath, headless: true, args: ["--no-sandbox"] });
const found = [];
for (const colorScheme of ["light", "dark"]) {
  for (const width of [390, 1400]) {
    const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
    const problems = [];
    page.on("console", (message) => problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("request", (request) => request.url().startsWith("file:") || problems.push(request.url()));
    await page.goto(pathToFileURL(file).href);
    found.push({ colorScheme, width, problems, ...(await page.evaluate(look)) });
    await page.close();
  }
}
await browser.close();
console.log(JSON.stringify(found));

function look() {
  const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
  const style = getComputedStyle(document.body);
  return {
    overflow: document.documentElement.scrollWidth - innerWidth,
    background: style.backgroundColor,
    ink: style.color,
    dots: document.querySelectorAll("#lag circle").length,
    rows: document.querySelectorAll("#waterfall svg > g").length,
    slowest: document.querySelectorAll("#slowest tbody tr").length,
    stages: texts("#stages tbody th"),
    figures: texts("#figures dd"),
    headings: texts("h2"),
  };
}
