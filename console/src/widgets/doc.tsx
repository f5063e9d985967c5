// Documentation of ops, of which ``text like this`` is code. Everything else in it is text. A line may end within such a text.

export function Doc({ text }: { text: string }) {
  return <>{text.split(/``([^`]+)``/).map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part.replaceAll("``", "")))}</>;
}
