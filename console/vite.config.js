import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

/** The most that a browser loads, as gzip. The build fails over it. */
const BUDGET_KB = 350;

const engine = readFileSync(new URL("../engine/telegrad_engine/__init__.py", import.meta.url), "utf8");
const version = /^__version__ = "(.+)"$/m.exec(engine)[1];

/** Prints the size of the bundle, and fails if it is over the budget. */
function budget() {
  return {
    name: "budget",
    generateBundle(_options, bundle) {
      const sizes = Object.values(bundle).map((file) => [
        file.fileName,
        gzipSync(file.type === "chunk" ? file.code : file.source).length / 1000,
      ]);
      const total = sizes.reduce((sum, [, size]) => sum + size, 0);
      console.log(`\nThe console is ${total.toFixed(1)} kB as gzip; the budget is ${BUDGET_KB} kB.`);
      if (total > BUDGET_KB) {
        this.error(`over the budget: ${sizes.map(([name, size]) => `${name} ${size.toFixed(1)} kB`).join(", ")}`);
      }
    },
  };
}

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  define: { __VERSION__: JSON.stringify(version) },
  build: {
    outDir: "../service/telegrad_service/console/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
    reportCompressedSize: false,
  },
  experimental: {
    // The server has the page at `/` and everything else below `/console/`.
    renderBuiltUrl: (file, { hostType }) => (hostType === "html" ? `./console/${file}` : { relative: true }),
  },
  plugins: [budget()],
  server: {
    proxy: { "^/(v1|healthz|readyz|metrics|openapi.json|docs)": process.env.TELEGRAD_URL ?? "http://127.0.0.1:8000" },
  },
});
