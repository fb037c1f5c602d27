// Writes dist/{index.html,app.js,app.css}. Nothing in them is fetched from elsewhere.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { gzipSync } from "node:zlib";

const here = (name) => new URL(name, import.meta.url).pathname;
rmSync(here("dist"), { recursive: true, force: true });
mkdirSync(here("dist"));
await build({
  entryPoints: { app: here("src/main.tsx") },
  outdir: here("dist"),
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "eof",
});
copyFileSync(here("src/index.html"), here("dist/index.html"));

let total = 0;
for (const name of ["index.html", "app.js", "app.css"]) {
  const bytes = gzipSync(readFileSync(here(`dist/${name}`))).length;
  total += bytes;
  console.log(`${name} ${bytes} bytes compressed`);
}
console.log(`${total} bytes compressed together`);
