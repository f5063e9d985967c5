// How the elements of a tensor are distributed.

import { formatCount, formatNumber } from "../format";

const WIDTH = 320;
const HEIGHT = 72;

interface Props {
  histogram: { edges: number[]; counts: number[] };
  label: string;
}

export function Histogram({ histogram: { edges, counts }, label }: Props) {
  const most = Math.max(1, ...counts);
  const step = WIDTH / Math.max(1, counts.length);
  const [first, last] = [edges[0], edges.at(-1)];
  const zero = first !== undefined && last !== undefined && first < 0 && last > 0 ? (-first / (last - first)) * WIDTH : null;
  return (
    <figure class="histogram">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${label}, from ${formatNumber(first)} to ${formatNumber(last)}`}>
        {zero !== null && <line class="zero" x1={zero} x2={zero} y1={0} y2={HEIGHT} />}
        {counts.map((count, index) => {
          const height = count === 0 ? 0 : Math.max(1.5, (count / most) * (HEIGHT - 4));
          return (
            <rect key={index} x={index * step + 0.5} width={Math.max(1, step - 1)} y={HEIGHT - height} height={height}>
              <title>{`${formatNumber(edges[index])} to ${formatNumber(edges[index + 1])}: ${formatCount(count)}`}</title>
            </rect>
          );
        })}
      </svg>
      <figcaption>
        <span>{formatNumber(first)}</span>
        <span>{formatNumber(last)}</span>
      </figcaption>
    </figure>
  );
}
