import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { LANGUAGES, pythonLiteral, snippet } from "./snippets";

const URL = "http://127.0.0.1:8000/v1/sessions/s/ops/mul";
const body = { inputs: ["it's", "</script>", '"x")"', null, true, -1.5], attrs: {}, outputs: ["y\\n$HOME`id`"] };

describe("snippets", () => {
  it.each(LANGUAGES)("has the URL, and the key only by name, in %s", (language) => {
    expect(snippet(language, { url: URL, body, withKey: true })).toContain("TELEGRAD_API_KEY");
    const without = snippet(language, { url: URL, body, withKey: false });
    expect(without).toContain(URL);
    expect(without).not.toContain("TELEGRAD_API_KEY");
  });

  it("quotes for a shell", () => {
    const command = snippet("curl", { url: URL, body, withKey: false }).replace("curl", "printf '%s\\n'");
    const printed = execFileSync("sh", ["-c", command], { encoding: "utf8" }).trimEnd().split("\n");
    expect(JSON.parse(printed.at(-1) ?? "")).toEqual(body);
  });

  it("writes literals of Python", () => {
    expect(pythonLiteral({ a: [true, false, null, 1.5, "x"] })).toBe('{"a": [True, False, None, 1.5, "x"]}');
    const code = `import json, sys; json.dump(${pythonLiteral(body)}, sys.stdout)`;
    expect(JSON.parse(execFileSync("python3", ["-c", code], { encoding: "utf8" }))).toEqual(body);
  });

  it("is JavaScript", () => {
    const code = snippet("JavaScript", { url: URL, body, withKey: false });
    const sent = new Function("fetch", `return (async () => { ${code.replace("console.log(await response.json())", "return response")} })()`);
    return expect(sent((_url: string, init: RequestInit) => init.body) as Promise<string>).resolves.toBe(JSON.stringify(body));
  });

  it("ends a raw string of R only where it ends", () => {
    expect(snippet("R", { url: URL, body: { a: ')"' }, withKey: false })).toContain('r"(');
    expect(snippet("R", { url: URL, body: [')"'], withKey: false })).toMatch(/r"\(\[\n {2}"\)\\""\n\]\)"/);
  });
});
