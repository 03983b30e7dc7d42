/* Elements without markup: text is always text, so nothing that a model writes can become HTML. */

function fill(node, props, children) {
    for (const [name, value] of Object.entries(props || {})) {
        if (value === undefined || value === null || value === false) continue;
        if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
        else if (name === 'text') node.textContent = value;
        else if (name === 'value' || name === 'checked') node[name] = value;
        else node.setAttribute(name, value === true ? '' : value);
    }
    node.append(...children.filter(c => c !== null && c !== undefined));
    return node;
}

/** el('a', {href: '/', onclick: f, text: 'home'}, ...children); null children are left out. */
export function el(tag, props, ...children) {
    return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
    return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

export const $ = id => document.getElementById(id);

/** localStorage or sessionStorage; where the browser forbids it, one that remembers nothing. */
export function storage(name) {
    try {
        return window[name];
    } catch {
        return {getItem: () => null, setItem() {}, removeItem() {}};
    }
}

/** Runs `f` at most once per frame, however often it is asked for. */
export function perFrame(f) {
    let asked = false;
    return () => {
        if (asked) return;
        asked = true;
        requestAnimationFrame(() => {
            asked = false;
            f();
        });
    };
}

/** Copies, and says so on the button for a moment. Without a secure context there is no clipboard
 * interface; a selected text area still can. */
export async function copyText(text, button) {
    let done = false;
    try {
        await navigator.clipboard.writeText(text);
        done = true;
    } catch {
        const area = el('textarea', {value: text, class: 'hidden', 'aria-hidden': 'true'});
        document.body.append(area);
        area.select();
        done = document.execCommand('copy');
        area.remove();
        button.focus();
    }
    const label = button.textContent;
    button.textContent = done ? 'Copied' : 'Not copied';
    button.disabled = true;
    setTimeout(() => {
        button.textContent = label;
        button.disabled = false;
    }, 1200);
}
