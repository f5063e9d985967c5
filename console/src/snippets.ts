// A request as code to copy: the same in several languages.

export const LANGUAGES = ["curl", "JavaScript", "Python", "R"] as const;
export type Language = (typeof LANGUAGES)[number];

export interface Call {
  url: string;
  body: unknown;
  /** Whether the server wants a key. It is never part of the code: that reads it from TELEGRAD_API_KEY. */
  withKey: boolean;
}

export function snippet(language: Language, call: Call): string {
  switch (language) {
    case "curl":
      return curl(call);
    case "JavaScript":
      return javascript(call);
    case "Python":
      return python(call);
    case "R":
      return r(call);
  }
}

function curl({ url, body, withKey }: Call): string {
  const lines = [`curl -sS ${shellQuoted(url)}`, "-H 'content-type: application/json'"];
  if (withKey) lines.push('-H "authorization: Bearer $TELEGRAD_API_KEY"');
  lines.push(`-d ${shellQuoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function javascript({ url, body, withKey }: Call): string {
  const key = withKey ? "\n    authorization: `Bearer ${process.env.TELEGRAD_API_KEY}`," : "";
  return `const response = await fetch(${JSON.stringify(url)}, {
  method: "POST",
  headers: {
    "content-type": "application/json",${key}
  },
  body: JSON.stringify(${indented(JSON.stringify(body, null, 2), 2)}),
});
console.log(await response.json());`;
}

function python({ url, body, withKey }: Call): string {
  const [imports, headers] = withKey
    ? ["import os\n\nimport httpx", '\n    headers={"authorization": f"Bearer {os.environ[\'TELEGRAD_API_KEY\']}"},']
    : ["import httpx", ""];
  return `${imports}

response = httpx.post(
    ${JSON.stringify(url)},${headers}
    json=${indented(pythonLiteral(body), 4)},
)
print(response.json())`;
}

/** A JSON value as a literal of Python. */
export function pythonLiteral(value: unknown, depth = 0): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((each) => pythonLiteral(each, depth + 1))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonLiteral(each, depth + 1)}`);
  const [open, close] = isList ? "[]" : "{}";
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length <= 80 && !line.includes("\n")) return line;
  const pad = "    ".repeat(depth + 1);
  return `${open}\n${items.map((item) => `${pad}${item},\n`).join("")}${"    ".repeat(depth)}${close}`;
}

function r({ url, body, withKey }: Call): string {
  const key = withKey ? '\n  req_auth_bearer_token(Sys.getenv("TELEGRAD_API_KEY")) |>' : "";
  return `library(httr2)

response <- request(${JSON.stringify(url)}) |>${key}
  req_body_raw(${rawString(JSON.stringify(body, null, 2))}, type = "application/json") |>
  req_perform()
str(resp_body_json(response))`;
}

/** A raw string of R, with as many dashes as its text needs. */
function rawString(text: string): string {
  let dashes = "";
  while (text.includes(`)${dashes}"`)) dashes += "-";
  return `r"${dashes}(${text})${dashes}"`;
}

function indented(text: string, spaces: number): string {
  return text.replaceAll("\n", `\n${" ".repeat(spaces)}`);
}
