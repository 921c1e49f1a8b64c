'use strict';
const root = document.documentElement;

// Colours: those of the system until the button is pressed; nothing is stored. page.css defines the dark colours,
// also those of charts: an SVG in the page is styled like the rest of it, so that a change needs no drawing.
const button = document.getElementById('theme');
const systemIsDark = matchMedia('(prefers-color-scheme: dark)');
const isDark = () => (root.dataset.theme ? root.dataset.theme === 'dark' : systemIsDark.matches);
const label = () => { button.textContent = isDark() ? 'Light colours' : 'Dark colours'; };
button.addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; label(); });
systemIsDark.addEventListener('change', label);
button.hidden = false;
label();

// Contents: next to the text where the window is wide, else closed above it.
const contents = document.getElementById('index');
const isWide = matchMedia('(min-width: 1200px)');
const fold = () => { contents.open = isWide.matches; };
isWide.addEventListener('change', fold);
fold();

// A link to a query opens it, in browsers that do not do so themselves.
const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const closed = target && target.closest('details:not([open])');
  if (closed) { closed.open = true; target.scrollIntoView(); }
};
addEventListener('hashchange', openTarget);
openTarget();

// The section in view is marked in the contents.
const links = new Map([...contents.querySelectorAll('a')].map((link) => [link.getAttribute('href').slice(1), link]));
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    for (const link of links.values()) link.removeAttribute('aria-current');
    const link = links.get(entry.target.id);
    link.setAttribute('aria-current', 'true');
    link.scrollIntoView({block: 'nearest'});
  }
}, {rootMargin: '-10% 0px -80% 0px'});
for (const section of document.querySelectorAll('section')) watcher.observe(section);

for (const spec of document.querySelectorAll('script[id^="spec-"]')) {
  const name = spec.id.slice('spec-'.length);
  vegaEmbed('#chart-' + name, JSON.parse(spec.textContent), {
    mode: 'vega-lite', renderer: 'svg', downloadFileName: name,
    actions: {export: true, source: false, compiled: false, editor: false},
  });
}
