// The graph view as one module with its styles, for the widget in a notebook.

import { defineConfig } from "vite";
import page from "./vite.config.js";

export default defineConfig({
  oxc: page.oxc,
  define: { ...page.define, "process.env.NODE_ENV": JSON.stringify("production") },
  build: {
    lib: { entry: "src/notebook.tsx", formats: ["es"], fileName: () => "notebook.js" },
    outDir: "../client/telegrad/notebook/static",
    emptyOutDir: true,
    chunkSizeWarningLimit: 1000,
    reportCompressedSize: false,
    rolldownOptions: { output: { minify: true } },
  },
});
