// A figure is drawn when it comes near the window, since a page may have many.
const late = new Map();
const draw = place => {
  const [figure, config] = late.get(place);
  late.delete(place);
  near.unobserve(place);
  const {data, layout} = figure();
  Plotly.newPlot(place, data, layout, config);
};
const near = new IntersectionObserver(
  entries => entries.filter(entry => entry.isIntersecting).forEach(entry => draw(entry.target)), {rootMargin: '500px'});
const drawLate = (id, figure, config) => {
  const place = document.getElementById(id);
  late.set(place, [figure, config]);
  near.observe(place);
};
const drawAll = () => [...late.keys()].forEach(draw);
addEventListener('beforeprint', drawAll);

// Paper is narrower than a window, which a figure does not follow by itself, shorter, and may have no colours.
const SHRUNK = 0.84;  // so that three figures fit on a page of A4
const DASHES = ['solid', 'dash', 'dot', 'dashdot'];
const onPaper = figure => {
  const dashes = [];
  figure.data.forEach((trace, i) => {
    if (trace.mode === 'lines' && trace.showlegend !== false) dashes.push([i, trace.line.dash]);
  });
  const {height} = figure.layout;
  const set = (dash, size) => {
    figure.parentElement.style.height = `${size.height}px`;
    Plotly.relayout(figure, size);
    if (dashes.length) Plotly.restyle(figure, {'line.dash': dashes.map(dash)}, dashes.map(([i]) => i));
  };
  set((_, n) => DASHES[n % DASHES.length], {autosize: false, width: 690, height: SHRUNK * height});
  addEventListener('afterprint', () => set(([, dash]) => dash, {autosize: true, width: null, height}), {once: true});
};
addEventListener('beforeprint', () => document.querySelectorAll('.js-plotly-plot').forEach(onPaper));

// Tables are saved as they are shown, in the format of RFC 4180.
const field = cell => {
  const text = cell.textContent.replace(/[ \t\n]+/g, ' ').trim();
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csv = table => [...table.rows].map(row => [...row.cells].map(field).join(',') + '\r\n').join('');
const named = table => {
  const run = document.querySelector('.meta .mono')?.textContent ?? document.title;
  const above = [...document.querySelectorAll('h1, h2')]
    .filter(heading => heading.compareDocumentPosition(table) & Node.DOCUMENT_POSITION_FOLLOWING).pop();
  const words = `${run} ${above?.textContent ?? ''}`;
  return words.replace(/[^\p{L}\p{N}.-]+/gu, '_').replace(/_+$/, '') + '.csv';
};
addEventListener('click', event => {
  const button = event.target.closest('button.csv');
  if (!button) return;
  const table = button.parentElement.querySelector('table');
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([csv(table)], {type: 'text/csv'}));
  link.download = named(table);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
});
