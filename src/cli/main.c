#include <stdio.h>
int main(void)
{
    puts("headrace " HR_VERSION);
    return 0;
}
