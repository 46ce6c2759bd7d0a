select *, menu_tokens as value from selections
