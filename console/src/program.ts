// What a program of the box "Try it" does to the ids of a session.

export interface Effects {
  /** The ids that it makes and does not free. */
  made: string[];
  /** The ids that it takes from what was there before. */
  taken: string[];
  freed: string[];
}

/** What the first instructions of a program do, by default all of them. */
export function effectsOf(body: unknown, count = Infinity): Effects {
  const [made, taken, freed] = [new Set<string>(), new Set<string>(), new Set<string>()];
  const { instructions } = Object(body) as { instructions?: unknown };
  for (const each of Array.isArray(instructions) ? (instructions as unknown[]).slice(0, count) : []) {
    const { op, inputs, outputs } = Object(each) as Record<string, unknown>;
    for (const id of idsIn(inputs)) {
      if (!made.has(id)) taken.add(id);
      if (op === "free" && !made.delete(id)) freed.add(id);
    }
    for (const id of idsIn(outputs)) made.add(id);
  }
  return { made: [...made], taken: [...taken], freed: [...freed] };
}

function idsIn(value: unknown): string[] {
  return Array.isArray(value) ? value.flatMap(idsIn) : typeof value === "string" ? [value] : [];
}

/**
 * Which of the box's own ids are in the way of a program: all of them, or, of a program that goes on from one of them,
 * those that it makes again.
 */
export function inTheWay(own: readonly string[], body: unknown): readonly string[] {
  const { made, taken } = effectsOf(body);
  return own.some((id) => taken.includes(id)) ? own.filter((id) => made.includes(id) && !taken.includes(id)) : own;
}
