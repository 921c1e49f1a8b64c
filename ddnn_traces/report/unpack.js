// The content of a script element, as templates.packed() writes it.
const unpack = async (element) => {
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
};
