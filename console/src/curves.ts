// Smoothing and thinning of curves.

/**
 * The exponential moving average with the bias of its start removed, as TensorBoard draws it: 0 leaves the values as they
 * are, 0.9 averages over some ten of them. Values that are not finite are passed over.
 */
export function smoothed(values: readonly number[], weight: number): number[] {
  let average = 0;
  let total = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return NaN;
    average = weight * average + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return average / total;
  });
}

/** How many of these times, in seconds, lie in each second, from the first whole one to the last, or to `until`. */
export function perSecond(times: readonly number[], until = -Infinity): { seconds: number[]; counts: number[] } {
  const [first, last] = [times[0], times.at(-1)];
  if (first === undefined || last === undefined) return { seconds: [], counts: [] };
  const start = Math.floor(first);
  const length = Math.floor(Math.max(last, until)) - start + 1;
  const counts = new Array<number>(length).fill(0);
  for (const time of times) {
    const index = Math.floor(time) - start;
    if (index >= 0 && index < length) counts[index] = (counts[index] ?? 0) + 1;
  }
  return { seconds: counts.map((_, index) => start + index), counts };
}
